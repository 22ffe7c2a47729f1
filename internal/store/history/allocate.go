package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/growing"
	"vigil/internal/vfs"
)

// allocatePause is the time between a failed allocation and the next try.
const allocatePause = time.Second

// allocator allocates files before they are needed, in goroutines: the segment after the open one,
// and the reserve. DESIGN.md has the diagram of its states.
//
// The reserve is a file of the size of a segment, allocated and never written, that stays in the
// directory over restarts. When the disk is full, it becomes one of two files:
//
//   - the segment after the open one, if batches that must be applied do not fit any more: the
//     allocator renames the reserve when the writer waits; or
//   - the output of a rewrite, which needs space before it frees any: takeReserve, if a file of its
//     own cannot be allocated.
//
// The allocator retries from time to time, so everything recovers by itself.
type allocator struct {
	dir    directory
	logger *slog.Logger
	member format.Identity // of new segments; set before the first one
	sizes  *sizes
	end    *ending
	work   *agenda // notified when there is room again

	ahead atomic.Int64 // the size of the next segment, 0 while there is none
	short atomic.Bool  // the last attempt failed, and next or reserve is missing

	mu struct {
		sync.Mutex
		changed sync.Cond // some field below, or the log has ended

		next        *growing.Segment // allocated, not yet in use
		nextID      uint64           // of the segment to allocate after next
		reserve     vfs.File         // allocated
		reserveSize int64
		// fitting is set while next and reserve must stay as they are: they are being resized or
		// renamed.
		fitting bool
		// wanted asks for next and reserve, waited is set while the writer cannot go on without
		// next.
		wanted, waited bool
		err            error // why the last attempt failed
		triedAt        time.Time
		// lacking is set from an attempt that failed to one that succeeds. The writer clears err to
		// ask for another attempt.
		lacking bool
	}
}

func newAllocator(dir directory, logger *slog.Logger, sizes *sizes, end *ending,
	work *agenda) *allocator {
	a := &allocator{dir: dir, logger: logger, sizes: sizes, end: end, work: work}
	a.mu.changed.L = &a.mu.Mutex
	context.AfterFunc(end.ctx, a.wakeAll)
	return a
}

func (a *allocator) wakeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.changed.Broadcast()
}

// allocateInBackground is the goroutine: it allocates next and the reserve when they are wanted,
// until the log ends.
func (a *allocator) allocateInBackground() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		for (!a.mu.wanted || a.mu.fitting || a.bothLocked()) && a.end.checkWritable() == nil {
			a.mu.changed.Wait()
		}
		if a.end.checkWritable() != nil {
			return
		}
		known := a.mu.lacking
		err := a.allocateLocked()
		a.mu.wanted, a.mu.err, a.mu.triedAt, a.mu.lacking = false, err, time.Now(), err != nil
		a.logAttempt(err, known)
		a.noteLocked()
		a.mu.changed.Broadcast()
		if err == nil && known {
			a.work.queueWork() // what could not be rewritten for want of room may be now
		}
	}
}

// logAttempt logs an attempt, unless the one before had the same outcome; known is set if it
// failed.
func (a *allocator) logAttempt(err error, known bool) {
	switch {
	case errors.Is(err, kv.ErrAway) && !known:
		a.logger.Warn("cannot make a history segment: rejecting writes until its directory is back",
			"error", err.Error())
	case kv.Shortage(err) && !known:
		a.logger.Warn("cannot preallocate a history segment: rejecting writes until disk space is available",
			"error", err.Error())
	case err != nil && !known:
		a.logger.Warn("cannot preallocate a history segment: retrying until it is needed",
			"error", err.Error())
	case err == nil && known:
		a.logger.Info("preallocated a history segment again: accepting writes")
	}
}

// bothLocked reports whether the next segment and the reserve exist.
func (a *allocator) bothLocked() bool { return a.mu.next != nil && a.mu.reserve != nil }

// noteLocked updates the fields that are read without the lock. It follows every change of next,
// reserve and err.
func (a *allocator) noteLocked() {
	size := int64(0)
	if a.mu.next != nil {
		size = a.mu.next.Alloc
	}
	a.ahead.Store(size)
	a.short.Store(a.mu.err != nil && !a.bothLocked())
}

// allocateLocked allocates the next segment and the reserve, if missing. It releases the lock while
// it allocates.
func (a *allocator) allocateLocked() error {
	// A reserve that an earlier run left needs no space.
	if err := a.fillReserveLocked(openReserve); err != nil {
		return err
	}
	for {
		if a.mu.next == nil {
			if err := a.allocateNextLocked(); err != nil {
				return err
			}
		}
		err := a.fillReserveLocked(makeReserve)
		// The writer may have taken next by now.
		if a.mu.next != nil || a.end.checkWritable() != nil {
			return err
		}
	}
}

// fillReserveLocked gets the reserve by open, if it is missing. It releases the lock while it waits
// and while open runs.
func (a *allocator) fillReserveLocked(open func(directory, *sizes) (vfs.File, int64, error)) error {
	for a.mu.fitting {
		a.mu.changed.Wait()
	}
	if a.mu.reserve != nil {
		return nil
	}
	a.mu.Unlock()
	file, size, err := open(a.dir, a.sizes)
	a.mu.Lock()
	a.mu.reserve, a.mu.reserveSize = file, size
	return a.end.failIfFinal(err)
}

func (a *allocator) allocateNextLocked() error {
	id, waited := a.mu.nextID, a.mu.waited
	a.mu.Unlock()
	seg, err := a.prepareSegment(id)
	if errors.Is(err, kv.ErrNoSpace) && waited {
		if last, serr := a.spendReserve(id); serr != nil || last != nil {
			seg, err = last, serr
		}
	}
	if err == nil {
		err = a.nameSegment(seg)
	}
	a.mu.Lock()
	if err != nil {
		return a.end.failIfFinal(err)
	}
	a.mu.next, a.mu.waited = seg, false
	a.mu.nextID++
	a.noteLocked()
	a.mu.changed.Broadcast()
	return nil
}

// prepareSegment makes the file of a segment under a temporary name, its space allocated and its
// header in place.
func (a *allocator) prepareSegment(id uint64) (*growing.Segment, error) {
	temp := a.dir.join(format.SegmentName(id) + format.TempSuffix)
	if err := a.dir.fs.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, allocationError(temp, err)
	}
	for size := a.sizes.nextSize(); ; size = smaller(size) {
		file, err := a.dir.fs.Create(temp)
		if err != nil {
			return nil, allocationError(temp, err)
		}
		seg, err := a.startSegment(id, temp, file, size)
		if err == nil || smaller(size) < a.sizes.leastSize() || !errors.Is(err, kv.ErrNoSpace) {
			return seg, err
		}
	}
}

// startSegment allocates size bytes for file, whose name is temp, and writes the header.
func (a *allocator) startSegment(id uint64, temp string, file vfs.File,
	size int64) (*growing.Segment, error) {
	var seg *growing.Segment
	err := file.Preallocate(size)
	if err == nil {
		seg, err = growing.Create(file, temp, format.NewHeader(a.member, id), size)
	}
	if err != nil {
		a.dir.discard(file, temp)
		return nil, allocationError(temp, err)
	}
	return seg, nil
}

// nameSegment makes a prepared segment durable and renames it to its final name. From then on its
// header must be intact. It discards the segment if it fails.
func (a *allocator) nameSegment(seg *growing.Segment) error {
	path := a.dir.join(format.SegmentName(seg.Head.ID))
	err := a.dir.syncFile(seg.File, seg.Path)
	if err == nil {
		err = a.dir.fs.Rename(seg.Path, path)
	}
	if err == nil {
		seg.Path = path
		err = a.dir.syncNames()
	}
	if err != nil {
		a.dir.discard(seg.File, seg.Path)
		return allocationError(path, err)
	}
	return nil
}

// spendReserve turns the reserve into the segment id. It returns nil if there is no reserve.
func (a *allocator) spendReserve(id uint64) (*growing.Segment, error) {
	temp := a.dir.join(format.SegmentName(id) + format.TempSuffix)
	file, size, err := a.takeReserve(temp)
	if err != nil || file == nil {
		return nil, err
	}
	a.logger.Warn("the disk is full: the reserve becomes a history segment", "segment",
		format.SegmentName(id))
	return a.startSegment(id, temp, file, size)
}

// takeReserve renames the reserve to path, which must not exist, and returns it open, with its
// size: that much is allocated and zero. It returns no file if there is no reserve now.
//
// It is for a rewrite whose own allocation failed with kv.ErrNoSpace. The name should end with
// TempSuffix until the output is whole, so that a crash leaves only a reserve that must be
// allocated again. When the rewrite has removed its input it calls refillReserve. Until then new
// puts are rejected.
func (a *allocator) takeReserve(path string) (vfs.File, int64, error) {
	a.mu.Lock()
	for a.mu.fitting {
		a.mu.changed.Wait()
	}
	file, size := a.mu.reserve, a.mu.reserveSize
	if file == nil {
		a.mu.Unlock()
		return nil, 0, nil
	}
	// The allocator must not open the file as a reserve while it still has that name.
	a.mu.fitting = true
	a.mu.reserve = nil
	a.noteLocked()
	a.mu.Unlock()
	err := a.dir.fs.Rename(a.dir.join(format.ReserveName), path)
	a.mu.Lock()
	a.mu.fitting = false
	a.mu.changed.Broadcast()
	a.mu.Unlock()
	if err != nil {
		_ = file.Close()
		err = a.end.failIfFinal(fmt.Errorf("history: take the reserve: %w", err))
		a.refillReserve()
		return nil, 0, err
	}
	return file, size, nil
}

// refillReserve requests a new reserve if it is missing. It does not wait.
func (a *allocator) refillReserve() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.reserve == nil {
		a.mu.wanted = true
		a.mu.changed.Broadcast()
	}
}

// reserveBytes returns the size of the reserve, or of the last one while there is none.
func (a *allocator) reserveBytes() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.reserveSize
}

// takeNext returns the next segment for the writer, and has another one allocated. It waits for the
// segment if there is none, and returns why there is none in the end.
func (a *allocator) takeNext() (*growing.Segment, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for try := 0; a.mu.next == nil && try < tries && (try == 0 || !kv.Shortage(a.mu.err)); try++ {
		a.mu.wanted, a.mu.err, a.mu.waited = true, nil, true
		a.mu.changed.Broadcast()
		for a.mu.next == nil && a.mu.err == nil && a.end.checkWritable() == nil {
			a.mu.changed.Wait()
		}
	}
	for a.mu.fitting && a.end.checkWritable() == nil {
		a.mu.changed.Wait()
	}
	if err := a.end.checkWritable(); err != nil {
		return nil, err
	}
	next := a.mu.next
	if next == nil {
		return nil, a.mu.err
	}
	a.mu.next, a.mu.waited = nil, false
	a.mu.wanted = true
	a.noteLocked()
	a.mu.changed.Broadcast()
	return next, nil
}

// awaitNext waits for the next segment, and returns true; or false if the last attempt to allocate
// it failed, or the log has ended.
func (a *allocator) awaitNext() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.mu.next == nil && a.mu.err == nil && a.end.checkWritable() == nil {
		a.mu.changed.Wait()
	}
	return a.mu.next != nil && a.end.checkWritable() == nil
}

// hasNext reports whether the next segment is there, hasAny whether it or the reserve is.
func (a *allocator) hasNext() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.next != nil
}

func (a *allocator) hasAny() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.next != nil || a.mu.reserve != nil
}

// lackError returns why the last attempt failed, nil if it did not or nothing is missing any more.
// A call after allocatePause makes the allocator try again.
func (a *allocator) lackError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.err == nil || a.bothLocked() {
		return nil
	}
	if !a.mu.wanted && time.Since(a.mu.triedAt) >= allocatePause {
		a.mu.wanted = true
		a.mu.changed.Broadcast()
	}
	return a.mu.err
}

// resizeInBackground is the goroutine that measures the write rate and resizes the files for it,
// until the log ends.
func (a *allocator) resizeInBackground() {
	tick := time.NewTicker(ratePeriod)
	defer tick.Stop()
	before, last := a.sizes.appended.Load(), int64(0)
	for {
		select {
		case <-a.end.ctx.Done():
			return
		case <-tick.C:
		}
		now := a.sizes.appended.Load()
		rate := (now - before) * int64(time.Second/ratePeriod)
		a.sizes.rate.Store(max(rate, last))
		before, last = now, rate
		a.resizeFiles()
	}
}

// resizeFiles cuts the next segment and the reserve if they are much larger than they should be,
// and grows the reserve if it is much smaller.
func (a *allocator) resizeFiles() {
	size := a.sizes.nextSize()
	a.mu.Lock()
	defer a.mu.Unlock()
	next, reserve := a.mu.next, a.mu.reserve
	cutNext := next != nil && next.Alloc > size+size/4
	cutReserve := reserve != nil && a.mu.reserveSize > size+size/4
	grow := reserve != nil && 2*a.mu.reserveSize < size && a.mu.err == nil
	if a.mu.fitting || a.end.checkWritable() != nil || !cutNext && !cutReserve && !grow {
		return
	}
	a.mu.fitting = true // nobody takes them
	a.mu.Unlock()
	var nextErr, reserveErr error
	if cutNext {
		nextErr = next.File.Truncate(size)
	}
	switch {
	case cutReserve:
		reserveErr = reserve.Truncate(size)
	case grow:
		reserveErr = reserve.Preallocate(size)
	}
	a.mu.Lock()
	// A file that could not be resized keeps its size.
	if cutNext && nextErr == nil {
		next.Alloc = size
	}
	if (cutReserve || grow) && reserveErr == nil {
		a.mu.reserveSize = size
	}
	a.mu.fitting = false
	a.noteLocked()
	a.mu.changed.Broadcast()
}

// closeFiles closes the files that were allocated ahead, after the goroutines have ended. With
// remove set it removes the next segment, too: it has no batch.
func (a *allocator) closeFiles(remove bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if next := a.mu.next; next != nil && remove {
		a.dir.discard(next.File, next.Path)
	} else if next != nil {
		_ = next.File.Close()
	}
	if a.mu.reserve != nil {
		_ = a.mu.reserve.Close()
	}
}
