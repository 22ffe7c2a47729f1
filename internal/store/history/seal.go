package history

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// sealer makes segments durable, in their order: it seals full ones, in a goroutine, and syncs.
type sealer struct {
	*core
	cat *catalog
	rec *reclaimState // woken when a segment was sealed

	// syncMu is held over syncs and seals. It comes before core.mu.
	syncMu sync.Mutex
	// stuck is set while the last try to seal failed.
	stuck atomic.Bool

	// Guarded by core.mu.
	pending *openSegment // full, no longer written to, not yet sealed
	err     error        // why the last of tries tries to seal it failed
	tries   int
	synced  Applied
}

func (s *sealer) run() {
	for {
		s.mu.Lock()
		for s.pending == nil && s.aliveLocked() == nil {
			s.mu.changed.Wait()
		}
		dead := s.aliveLocked() != nil
		s.mu.Unlock()
		if dead {
			return
		}
		s.syncMu.Lock()
		err := s.sealPending()
		s.syncMu.Unlock()
		if err != nil {
			// It is in mu.err, or the seal is retried.
			select {
			case <-s.rec.stop.Done():
			case <-s.failed:
			case <-time.After(retryPause):
			}
		}
	}
}

// sealPending seals the pending segment, if there is one. After an error that is not in mu.err it stays pending. syncMu
// is held.
func (s *sealer) sealPending() error {
	s.mu.Lock()
	seg, err := s.pending, s.mu.err
	s.mu.Unlock()
	if seg == nil || err != nil {
		return err
	}
	if err := s.seal(seg); err != nil {
		if final(err) {
			return s.fail(err)
		}
		return s.noteSeal(vfs.MarkShortage(err))
	}
	defer s.rec.kick() // when mu is free again: rec comes before it
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.o.Logger.Info("sealed a history segment that could not be sealed before", "segment", format.SegmentName(seg.Head.ID))
	}
	s.pending, s.err, s.tries = nil, nil, 0
	s.stuck.Store(false)
	s.synced = seg.Applied
	s.mu.changed.Broadcast()
	return nil
}

// noteSeal notes that the pending segment could not be sealed yet.
func (s *sealer) noteSeal(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.o.Logger.Warn("cannot seal a history segment yet", "error", err.Error())
	}
	s.err = err
	s.stuck.Store(true)
	s.tries++
	s.mu.changed.Broadcast()
	return err
}

// seal writes the tables and the footer of a full segment, makes it durable, gives it the name of a
// sealed one and switches readers from memory to the file. After an error that is not final it can be
// called again and continues.
func (s *sealer) seal(seg *openSegment) error {
	foot := seg.Footer()
	path := s.path(format.SealedName(foot.FirstID, foot.LastID, foot.Generation))
	if !seg.renamed {
		if err := seg.WriteTables(&foot); err != nil {
			return fmt.Errorf("history: seal %s: %w", seg.Path, err)
		}
		if err := s.syncFile(seg.File, seg.Path); err != nil {
			return err
		}
		seg.Synced.Store(seg.End)
		if err := s.o.FS.Rename(seg.Path, path); err != nil {
			return fmt.Errorf("history: seal %s: %w", seg.Path, s.awayOr(seg.Path, seg.File, err))
		}
		seg.renamed = true
	}
	if err := s.syncDir(); err != nil {
		return err
	}
	in := seg.File
	if seg.reopen {
		var err error
		if in, err = s.o.FS.Open(path); err != nil {
			return fmt.Errorf("history: seal %s: %w", path, err)
		}
	}
	file, _, err := segfile.Open(in, path)
	if err != nil {
		seg.reopen = true
		return err
	}
	seg.seg.size.Store(file.Footer().FileSize())
	seg.seg.src.Store(&source{file: file})
	s.o.Logger.Debug("sealed a history segment", "file", path, "records", file.Footer().Records, "bytes", file.Footer().FileSize())
	return nil
}

// awayOr returns why an operation on a name failed. If the open file is no longer at that path, the
// error is an AwayError, which is retried until the file is back; otherwise it is err.
func (s *sealer) awayOr(path string, file vfs.File, err error) error {
	if away := vfs.CheckFile(s.o.FS, path, file); errors.Is(away, kv.ErrAway) {
		return away
	}
	return err
}

// sync is Log.Sync.
func (s *sealer) sync() (Applied, error) {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	return s.syncLocked()
}

func (s *sealer) syncLocked() (Applied, error) {
	var v *View
	for {
		if err := s.alive(); err != nil {
			return Applied{}, err
		}
		v = s.cat.view.Load()
		s.mu.Lock()
		older := s.pending != nil && s.pending != v.open
		s.mu.Unlock()
		if !older {
			break
		}
		if err := s.sealPending(); err != nil {
			return Applied{}, err
		}
	}
	// The file of v.open stays open: sealing it takes syncMu.
	seg := v.open
	if seg.Synced.Load() < v.end {
		if err := s.syncFile(seg.File, seg.Path); err != nil {
			return Applied{}, s.fail(err)
		}
		s.noteSynced(seg, v.end, v.applied)
	}
	return v.applied, nil
}

func (s *sealer) noteSynced(seg *openSegment, end uint32, a Applied) {
	seg.Synced.Store(end)
	s.mu.Lock()
	s.synced = a
	s.mu.Unlock()
}

// position is Log.Synced.
func (s *sealer) position() Applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}
