package history

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs"
)

const (
	logSuffix    = ".log"
	sealedSuffix = ".seg"
	tempSuffix   = ".tmp"

	// allocatePause is how long after an allocation that failed the next one is tried.
	allocatePause = time.Second
	// retryPause is how long after a step that failed for want of a resource it is tried again.
	retryPause = 200 * time.Millisecond
	// tries is how often a step that the writer waits for is tried before its failure ends the log,
	// unless it fails for want of a resource, which is waited for.
	tries = 3
)

// syncError is a sync that failed. What is on disk is unknown then, and no other sync can tell.
type syncError struct{ err error }

func (e *syncError) Error() string { return e.err.Error() }
func (e *syncError) Unwrap() error { return e.err }

// final says whether err ends the log: after a failed sync, and on damage. After any other error of an
// operation on files, all is as it was.
func final(err error) bool {
	var failed *syncError
	return errors.As(err, &failed) || vfs.CauseOf(err) == vfs.Damage
}

// start starts the background: the sealer and the allocator, each a goroutine that waits for work
// in Log.mu until the log is closed or has failed.
func (l *Log) start() {
	l.mu.allocate = true
	l.noteRoomLocked()
	l.done.Go(l.sealer)
	l.done.Go(l.allocator)
	l.done.Go(l.reclaimer)
	l.done.Go(l.fitter)
}

func (l *Log) sealer() {
	for {
		l.mu.Lock()
		for l.mu.sealing == nil && l.aliveLocked() == nil {
			l.mu.changed.Wait()
		}
		dead := l.aliveLocked() != nil
		l.mu.Unlock()
		if dead {
			return
		}
		l.syncMu.Lock()
		err := l.sealPending()
		l.syncMu.Unlock()
		if err != nil {
			// It is in mu.err, or the seal is to be tried again.
			select {
			case <-l.rec.stop.Done():
			case <-l.failed:
			case <-time.After(retryPause):
			}
		}
	}
}

// sealPending seals the segment that waits for it, if one does. An error that is not in mu.err leaves it
// waiting. syncMu is held.
func (l *Log) sealPending() error {
	l.mu.Lock()
	seg, err := l.mu.sealing, l.mu.err
	l.mu.Unlock()
	if seg == nil || err != nil {
		return err
	}
	if err := l.seal(seg); err != nil {
		if final(err) {
			return l.fail(err)
		}
		return l.noteSeal(vfs.MarkShortage(err))
	}
	defer l.kickReclaim() // when mu is free again: rec comes before it
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.sealErr != nil {
		l.o.Logger.Info("sealed a history segment that could not be sealed before", "segment", segmentName(seg.head.id))
	}
	l.mu.sealing, l.mu.sealErr, l.mu.sealTries = nil, nil, 0
	l.mu.synced = seg.applied
	l.noteRoomLocked()
	l.mu.changed.Broadcast()
	return nil
}

// noteSeal notes that the segment that waits for its seal could not be sealed yet.
func (l *Log) noteSeal(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.sealErr == nil {
		l.o.Logger.Warn("cannot seal a history segment yet", "error", err.Error())
	}
	l.mu.sealErr = err
	l.mu.sealTries++
	l.noteRoomLocked()
	l.mu.changed.Broadcast()
	return err
}

// seal writes the tables and the footer of a full segment, makes it durable, gives it the name of a
// sealed one and lets readers go over from memory to the file. After an error that is not final it can be
// called again, and goes on where it was.
func (l *Log) seal(seg *openSegment) error {
	foot := footer{
		firstID:  seg.head.id,
		lastID:   seg.head.id,
		revision: seg.revision,
		applied:  seg.applied,
		before:   seg.before,
		after:    seg.after,
	}
	path := l.path(sealedName(foot.firstID, foot.lastID, foot.generation))
	if !seg.renamed {
		if err := seg.writeTables(&foot); err != nil {
			return fmt.Errorf("history: seal %s: %w", seg.path, err)
		}
		if err := l.syncFile(seg.file, seg.path); err != nil {
			return err
		}
		seg.synced.Store(seg.end)
		if err := l.o.FS.Rename(seg.path, path); err != nil {
			return fmt.Errorf("history: seal %s: %w", seg.path, err)
		}
		seg.renamed = true
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	in := seg.file
	if seg.reopen {
		var err error
		if in, err = l.o.FS.Open(path); err != nil {
			return fmt.Errorf("history: seal %s: %w", path, err)
		}
	}
	file, _, err := openSealed(in, path)
	if err != nil {
		seg.reopen = true
		return err
	}
	seg.seg.size.Store(file.foot.fileSize())
	seg.seg.src.Store(&source{file: file})
	l.o.Logger.Debug("sealed a history segment", "file", path, "records", file.foot.records, "bytes", file.foot.fileSize())
	return nil
}

// writeTables writes the tables and the footer behind the batches, the footer being filled in but
// for what s knows.
func (s *openSegment) writeTables(foot *footer) error {
	foot.sparse = s.mem.sorted
	foot.bodyEnd = s.end
	foot.batches = s.batches
	foot.records = uint32(s.mem.len())
	foot.metas = uint32(len(s.metas))
	foot.mains = uint32(len(s.mem.mains))
	foot.bodySum = s.bodySum
	foot.first, foot.last = s.first, s.last
	foot.live = uint64(s.bytes)
	b := make([]byte, 0, foot.fileSize()-int64(s.end))
	b = s.mem.append(b)
	for _, off := range s.metas {
		b = le.AppendUint32(b, off)
	}
	foot.tableSum = crc32.Update(s.head.sum, castagnoli, b)
	b = b[:cap(b)-footerSize]
	b = append(b, foot.encode(s.head.sum)...)
	if _, err := s.file.WriteAt(b, int64(s.end)); err != nil {
		return err
	}
	return s.file.Truncate(foot.fileSize())
}

func (l *Log) syncFile(f vfs.File, path string) error {
	if l.o.NoSync {
		return nil
	}
	if err := f.Sync(); err != nil {
		return &syncError{fmt.Errorf("history: sync %s: %w", path, err)}
	}
	return nil
}

func (l *Log) syncDir() error {
	if l.o.NoSync {
		return nil
	}
	err := l.o.FS.SyncDir(l.o.Dir)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("history: sync %s: %w", l.o.Dir, err)
	if vfs.CauseOf(err) == vfs.Exhausted {
		return vfs.MarkShortage(err) // the directory could not even be opened
	}
	return &syncError{err}
}

func (l *Log) allocator() {
	mu := &l.mu
	mu.Lock()
	defer mu.Unlock()
	for {
		for (!mu.allocate || mu.fitting || mu.next != nil && mu.reserve != nil) && l.aliveLocked() == nil {
			mu.changed.Wait()
		}
		if l.aliveLocked() != nil {
			return
		}
		known := mu.allocErr != nil
		err := l.allocateLocked()
		mu.allocate, mu.allocErr, mu.triedAt = false, err, time.Now()
		switch {
		case kv.Shortage(err) && !known:
			l.o.Logger.Warn("cannot allocate a history segment ahead: what adds to the store is refused until there is room", "error", err.Error())
		case err != nil && !known:
			l.o.Logger.Warn("cannot allocate a history segment ahead; it is tried again until it is needed", "error", err.Error())
		case err == nil && known:
			l.o.Logger.Info("there is room for history segments again")
		}
		l.noteRoomLocked()
		mu.changed.Broadcast()
		if err == nil && known {
			// What could not be rewritten for want of room may be now. rec comes before mu.
			mu.Unlock()
			l.kickReclaim()
			mu.Lock()
		}
	}
}

// allocateLocked makes what is missing of the next segment and the reserve. mu is given up meanwhile.
func (l *Log) allocateLocked() error {
	mu := &l.mu
	reserve := func(get func() (vfs.File, int64, error)) (err error) {
		for mu.fitting {
			mu.changed.Wait()
		}
		if mu.reserve == nil {
			var file vfs.File
			var size int64
			mu.Unlock()
			file, size, err = get()
			mu.Lock()
			mu.reserve, mu.reserveSize = file, size
		}
		return err
	}
	// The one that an earlier life left needs no space.
	if err := reserve(l.openReserve); err != nil {
		return err
	}
	for {
		if mu.next == nil {
			if err := l.allocateNextLocked(); err != nil {
				return err
			}
		}
		err := reserve(l.makeReserve)
		// The writer may have taken next meanwhile.
		if mu.next != nil || l.aliveLocked() != nil {
			return err
		}
	}
}

func (l *Log) allocateNextLocked() error {
	mu := &l.mu
	id, waited := mu.nextID, mu.waited
	mu.Unlock()
	seg, err := l.prepare(id)
	if errors.Is(err, kv.ErrNoSpace) && waited {
		if last, serr := l.spendReserve(id); serr != nil || last != nil {
			seg, err = last, serr
		}
	}
	if err == nil {
		err = l.finish(seg)
	}
	mu.Lock()
	if err != nil {
		return err
	}
	mu.next, mu.waited = seg, false
	mu.nextID++
	l.noteRoomLocked()
	mu.changed.Broadcast()
	return nil
}

// prepare makes the file of a segment under a temporary name, its space allocated and its header in
// place.
func (l *Log) prepare(id uint64) (*openSegment, error) {
	temp := l.path(segmentName(id) + tempSuffix)
	if err := l.o.FS.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, l.allocationFailed(temp, err)
	}
	for size := l.segmentSize(); ; size = smaller(size) {
		file, err := l.o.FS.Create(temp)
		if err != nil {
			return nil, l.allocationFailed(temp, err)
		}
		seg, err := l.beginSegment(id, temp, file, size)
		if err == nil || smaller(size) < l.o.leastSize() || !errors.Is(err, kv.ErrNoSpace) {
			return seg, err
		}
	}
}

// beginSegment sees that the file, whose name is temp, has size bytes, and writes the header.
func (l *Log) beginSegment(id uint64, temp string, file vfs.File, size int64) (*openSegment, error) {
	seg := &openSegment{
		head:  header{version: formatVersion, clusterID: l.o.ClusterID, memberID: l.o.MemberID, id: id, salt: newSalt()},
		path:  temp,
		file:  file,
		alloc: size,
		seg:   &segment{id: id},
		end:   headerSize,
	}
	err := file.Preallocate(seg.alloc)
	if err == nil {
		_, err = file.WriteAt(seg.head.encode(), 0)
	}
	if err != nil {
		l.abandon(seg)
		return nil, l.allocationFailed(temp, err)
	}
	seg.bodySum = seg.head.sum
	seg.synced.Store(headerSize)
	return seg, nil
}

// finish makes a prepared segment durable and gives it its name. From then on it must not be damaged
// in any way: a segment with its name has a header. It abandons the segment if it fails.
func (l *Log) finish(seg *openSegment) error {
	path := l.path(segmentName(seg.head.id))
	err := l.syncFile(seg.file, seg.path)
	if err == nil {
		err = l.o.FS.Rename(seg.path, path)
	}
	if err == nil {
		seg.path = path
		err = l.syncDir()
	}
	if err != nil {
		l.abandon(seg)
		return l.allocationFailed(path, err)
	}
	return nil
}

// abandon gives up a segment that nothing was committed to. What it cannot remove the next Open
// removes.
func (l *Log) abandon(seg *openSegment) {
	_ = seg.file.Close()
	_ = l.o.FS.Remove(seg.path)
}

// Sync makes everything that was committed before the call durable and returns the position that is
// now durable. It may take as long as the disk does.
func (l *Log) Sync() (Applied, error) {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.syncLocked()
}

func (l *Log) syncLocked() (Applied, error) {
	var v *View
	for {
		if err := l.alive(); err != nil {
			return Applied{}, err
		}
		v = l.view.Load()
		l.mu.Lock()
		older := l.mu.sealing != nil && l.mu.sealing != v.open
		l.mu.Unlock()
		if !older {
			break
		}
		if err := l.sealPending(); err != nil {
			return Applied{}, err
		}
	}
	// The file of v.open stays open: only who holds syncMu seals it.
	seg := v.open
	if seg.synced.Load() < v.end {
		if err := l.syncFile(seg.file, seg.path); err != nil {
			return Applied{}, l.fail(err)
		}
		l.noteSynced(seg, v.end, v.applied)
	}
	return v.applied, nil
}

func (l *Log) noteSynced(seg *openSegment, end uint32, a Applied) {
	seg.synced.Store(end)
	l.mu.Lock()
	l.mu.synced = a
	l.mu.Unlock()
}

// Synced returns a position that is durable. It takes no I/O.
func (l *Log) Synced() Applied {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.synced
}

// Retire ends writing and the background, without a sync: another log takes the place of this one.
// Reads go on until Close, and no name in the directory is used any more, so that it may be renamed
// or removed. The writer must be idle. Everything that would write returns ErrClosed from now on.
func (l *Log) Retire() {
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		return
	}
	l.mu.closed, l.mu.retired = true, true
	l.noteRoomLocked()
	l.mu.changed.Broadcast()
	l.mu.Unlock()
	l.stopReclaim()
	l.done.Wait()
	// Whoever began before has the directory's names in hand.
	l.checkpointing.Lock()
	defer l.checkpointing.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
}

// Close stops the background, syncs what was committed and closes the files. It returns the error
// that ended the life of the log, if one did. A batch that was not committed is lost. Of a log that
// was retired it closes the files only.
func (l *Log) Close() error {
	l.mu.Lock()
	retired := l.mu.retired
	if l.mu.closed && !retired {
		l.mu.Unlock()
		return ErrClosed
	}
	l.mu.closed, l.mu.retired = true, false
	l.noteRoomLocked()
	l.mu.changed.Broadcast()
	l.mu.Unlock()
	l.stopReclaim()
	l.done.Wait()

	err := error(nil)
	if !retired {
		err = l.finalSync()
	}
	switch next := l.mu.next; {
	case next != nil && err == nil && !retired:
		l.abandon(next)
	case next != nil:
		_ = next.file.Close()
	}
	if l.mu.sealing != nil {
		_ = l.mu.sealing.file.Close()
	}
	if l.mu.reserve != nil {
		_ = l.mu.reserve.Close()
	}
	if cerr := l.w.seg.file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("history: close %s: %w", l.w.seg.path, cerr)
	}
	for _, s := range l.mu.segs {
		if src := s.src.Load(); src.file != nil {
			src.file.release()
		}
	}
	return err
}

// finalSync makes everything durable and adds a mark, an empty batch that says so, if the last batch
// does not. Without it a damaged last batch would look like one that a crash tore.
func (l *Log) finalSync() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.sealPending(); err != nil {
		if l.Err() != nil {
			return err
		}
		// The next Open seals it.
		if seg := l.mu.sealing; seg.synced.Load() < seg.end {
			if err := l.syncFile(seg.file, seg.path); err != nil {
				return l.fail(err)
			}
		}
	}
	w := &l.w
	seg := w.seg
	if seg.marked && seg.synced.Load() == seg.end {
		return nil
	}
	if !seg.marked {
		if err := l.syncFile(seg.file, seg.path); err != nil {
			return l.fail(err)
		}
		l.noteSynced(seg, seg.end, seg.applied)
		w.drop()
		w.last = l.view.Load().last
		w.begin(0)
		if err := l.write(w.applied); kv.Shortage(err) {
			l.o.Logger.Warn("closing the history without a mark that its end is whole", "error", err.Error())
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := l.syncFile(seg.file, seg.path); err != nil {
		return l.fail(err)
	}
	l.noteSynced(seg, seg.end, seg.applied)
	return nil
}
