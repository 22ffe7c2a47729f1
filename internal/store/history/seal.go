package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// sealer makes segments durable, in their order: it seals the full segment of the manifest, in a
// goroutine, and syncs the open one.
type sealer struct {
	dir    directory
	logger *slog.Logger
	end    *ending
	cat    *catalog
	work   *agenda // notified when a segment was sealed

	// order is held over syncs and seals. It comes before all other locks.
	order sync.Mutex
	// Guarded by order: how far a try to seal the full segment got. renamed says that the file has
	// the name of a sealed one, reopen that the file was closed.
	renamed, reopen bool

	// stuck is set while the last try to seal failed.
	stuck atomic.Bool

	mu struct {
		sync.Mutex
		changed sync.Cond // a segment is full or sealed, a try failed, or the log has ended
		// why the last of tries tries failed; nil if there was none or it succeeded
		err    error
		tries  int
		synced Applied
	}
}

func newSealer(dir directory, logger *slog.Logger, end *ending, cat *catalog,
	work *agenda) *sealer {
	s := &sealer{dir: dir, logger: logger, end: end, cat: cat, work: work}
	s.mu.changed.L = &s.mu.Mutex
	context.AfterFunc(end.ctx, s.wakeAll)
	return s
}

// wakeAll wakes all goroutines that wait for a change.
func (s *sealer) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.changed.Broadcast()
}

// sealInBackground is the goroutine: it seals each segment that becomes full, until the log ends.
func (s *sealer) sealInBackground() {
	for s.awaitFull() {
		s.order.Lock()
		err := s.sealFull()
		s.order.Unlock()
		if err != nil {
			s.end.waitToRetry() // it has ended the log, or the seal is tried again
		}
	}
}

// awaitFull waits for a full segment. It returns false if the log ends.
func (s *sealer) awaitFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.hasFull() && s.end.checkWritable() == nil {
		s.mu.changed.Wait()
	}
	return s.end.checkWritable() == nil
}

// hasFull reports whether a segment is full and not sealed.
func (s *sealer) hasFull() bool {
	_, g := s.cat.manifest.Load().unsealed()
	return g != nil
}

// awaitSealed waits until no segment is full, so that the open one may become full. It returns why
// the full one cannot be sealed: a shortage at once, another error after some tries.
func (s *sealer) awaitSealed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.hasFull() && !kv.Shortage(s.mu.err) && s.mu.tries < tries &&
		s.end.checkWritable() == nil {
		s.mu.changed.Wait()
	}
	if s.hasFull() && s.mu.err != nil {
		return s.mu.err
	}
	return s.end.checkWritable()
}

// awaitTry waits until no segment is full, and returns true; or false if the last try to seal it
// failed, or the log has ended.
func (s *sealer) awaitTry() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.hasFull() && s.mu.err == nil && s.end.checkWritable() == nil {
		s.mu.changed.Wait()
	}
	return !s.hasFull() && s.end.checkWritable() == nil
}

// shortageError returns the shortage for which the last try to seal failed, nil if there was none.
func (s *sealer) shortageError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kv.Shortage(s.mu.err) {
		return s.mu.err
	}
	return nil
}

// sealFull seals the full segment, if there is one. After an error that has not ended the log, the
// segment stays full. The caller holds order.
func (s *sealer) sealFull() error {
	seg, g := s.cat.manifest.Load().unsealed()
	if err := s.end.failure(); g == nil || err != nil {
		return err
	}
	if err := s.seal(seg, g); err != nil {
		if isFinal(err) {
			return s.end.fail(err)
		}
		return s.noteFailure(vfs.MarkShortage(err))
	}
	s.noteSealed(g)
	s.work.queueWork()
	return nil
}

// noteSealed records that the full segment was sealed.
func (s *sealer) noteSealed(g *growing.Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil {
		s.logger.Info("sealed a history segment that could not be sealed before",
			"segment", format.SegmentName(g.Head.ID))
	}
	s.mu.err, s.mu.tries = nil, 0
	s.stuck.Store(false)
	s.mu.synced = g.Applied
	s.mu.changed.Broadcast()
}

// noteFailure records that the full segment could not be sealed yet. It returns err.
func (s *sealer) noteFailure(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err == nil {
		s.logger.Warn("cannot seal a history segment yet", "error", err.Error())
	}
	s.mu.err = err
	s.stuck.Store(true)
	s.mu.tries++
	s.mu.changed.Broadcast()
	return err
}

// seal writes the tables and the footer of a full segment, makes it durable, gives it the name of a
// sealed one and switches readers from memory to the file. After an error that is not final it can
// be called again and continues.
func (s *sealer) seal(seg *segment, g *growing.Segment) error {
	foot := g.Footer()
	path := s.dir.join(format.SealedName(foot.FirstID, foot.LastID, foot.Generation))
	if !s.renamed {
		if err := g.WriteTables(&foot); err != nil {
			return fmt.Errorf("history: seal %s: %w", g.Path, err)
		}
		if err := s.dir.syncFile(g.File, g.Path); err != nil {
			return err
		}
		g.Synced.Store(g.End)
		if err := s.dir.fs.Rename(g.Path, path); err != nil {
			return fmt.Errorf("history: seal %s: %w", g.Path, s.explainRename(g.Path, g.File, err))
		}
		s.renamed = true
	}
	if err := s.dir.syncNames(); err != nil {
		return err
	}
	in := g.File
	if s.reopen {
		var err error
		if in, err = s.dir.fs.Open(path); err != nil {
			return fmt.Errorf("history: seal %s: %w", path, err)
		}
	}
	file, _, err := segfile.Open(in, path)
	if err != nil {
		s.reopen = true
		return err
	}
	s.renamed, s.reopen = false, false
	seg.setFile(file)
	s.logger.Debug("sealed a history segment", "file", path,
		"records", file.Footer().Records, "bytes", file.Footer().FileSize())
	return nil
}

// explainRename returns why a rename failed with err. If the open file is no longer at its path,
// the error is an AwayError, and the rename is retried until the file is back.
func (s *sealer) explainRename(path string, file vfs.File, err error) error {
	if away := vfs.CheckFile(s.dir.fs, path, file); errors.Is(away, kv.ErrAway) {
		return away
	}
	return err
}

// syncAll makes everything that was committed before the call durable, and returns the position
// that is durable then.
func (s *sealer) syncAll() (Applied, error) {
	s.order.Lock()
	defer s.order.Unlock()
	if err := s.end.checkWritable(); err != nil {
		return Applied{}, err
	}
	v := s.cat.manifest.Load()
	// No segment is synced before the one before it is sealed.
	if err := s.sealFull(); err != nil {
		return Applied{}, err
	}
	// The file of v's open segment stays open: sealing it takes order.
	g := v.growing
	if g.Synced.Load() < v.end {
		if err := s.dir.syncFile(g.File, g.Path); err != nil {
			return Applied{}, s.end.fail(err)
		}
		s.noteSynced(g, v.end, v.applied)
	}
	return v.applied, nil
}

// noteSynced records that the open segment is durable up to end, and so the log up to at.
func (s *sealer) noteSynced(g *growing.Segment, end uint32, at Applied) {
	g.Synced.Store(end)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.synced = at
}

// durable returns the position that is known to be durable.
func (s *sealer) durable() Applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.synced
}
