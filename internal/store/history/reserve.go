package history

import (
	"errors"
	"fmt"
	"io/fs"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// The reserve is a file of the size of a segment, allocated and never written, that stays in the
// directory over restarts. It is what can still be made when the disk is full:
//
//   - the segment after the open one, if batches that must be applied do not fit any more (the
//     allocator turns the reserve into it when the writer waits), or
//   - the output of a rewrite, which needs space before it frees any: takeReserve, if a file of its own
//     cannot be allocated.
//
// While the next segment or the reserve is missing for lack of space, Room rejects writes that add to
// the store; RoomToFree still accepts those that make it smaller, as long as there is space left for
// them. The allocator retries from time to time, so everything recovers by itself.

// takeReserve renames the reserve to path, which must not exist, and returns it open, with its size: that much is
// allocated and zero. It returns no file if there is no reserve now.
//
// It is for a rewriter whose own allocation failed with kv.ErrNoSpace. The name should be one with
// tempSuffix until the output is whole, so that a crash leaves only a reserve that must be
// allocated again. When the rewriter has removed its input it calls refillReserve; until then new
// puts are rejected.
func (a *allocator) takeReserve(path string) (vfs.File, int64, error) {
	a.mu.Lock()
	for a.fitting {
		a.mu.changed.Wait()
	}
	file, size := a.reserve, a.reserveSize
	if file == nil {
		a.mu.Unlock()
		return nil, 0, nil
	}
	// The allocator must not take the file for a reserve while it still has the name of one.
	a.fitting = true
	a.reserve = nil
	a.noteLocked()
	a.mu.Unlock()
	err := a.o.FS.Rename(a.path(format.ReserveName), path)
	a.mu.Lock()
	a.fitting = false
	a.mu.changed.Broadcast()
	a.mu.Unlock()
	if err != nil {
		_ = file.Close()
		err = a.failFinal(fmt.Errorf("history: take the reserve: %w", err))
		a.refillReserve()
		return nil, 0, err
	}
	return file, size, nil
}

// refillReserve requests a new reserve if it is missing. It does not wait.
func (a *allocator) refillReserve() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reserve == nil {
		a.wanted = true
		a.mu.changed.Broadcast()
	}
}

// openReserve opens the reserve that an earlier run left, whole. It returns nil if there is none.
func (a *allocator) openReserve() (vfs.File, int64, error) {
	path := a.path(format.ReserveName)
	file, err := a.o.FS.OpenWrite(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, a.allocationFailed(path, err)
	}
	size, err := file.Size()
	if err == nil && size >= a.o.leastSize() && size <= a.o.SegmentBytes {
		// A crash before it was durable may have freed its space.
		if err = file.Preallocate(size); err == nil {
			return file, size, nil
		}
	}
	// One of another segment size, one that a crash cut short, or one with holes: it is allocated again.
	_ = file.Close()
	if rerr := a.o.FS.Remove(path); rerr != nil {
		err = rerr
	}
	if err != nil && vfs.CauseOf(err) != vfs.NoSpace {
		return nil, 0, a.allocationFailed(path, err)
	}
	return nil, 0, nil
}

// makeReserve allocates the reserve, which does not exist.
func (a *allocator) makeReserve() (vfs.File, int64, error) {
	path := a.path(format.ReserveName)
	file, err := a.o.FS.Create(path)
	if err != nil {
		return nil, 0, a.allocationFailed(path, err)
	}
	size := a.cat.segmentSize()
	err = file.Preallocate(size)
	for smaller(size) >= a.o.leastSize() && vfs.CauseOf(err) == vfs.NoSpace {
		size = smaller(size)
		if err = file.Truncate(0); err == nil { // frees what was allocated of it
			err = file.Preallocate(size)
		}
	}
	if err == nil {
		err = a.syncFile(file, path)
	}
	if err == nil {
		err = a.syncDir()
	}
	if err != nil {
		_ = file.Close()
		_ = a.o.FS.Remove(path) // frees what was allocated of it
		return nil, 0, a.allocationFailed(path, err)
	}
	return file, size, nil
}

// spendReserve turns the reserve into the segment id.
func (a *allocator) spendReserve(id uint64) (*openSegment, error) {
	temp := a.path(format.SegmentName(id) + format.TempSuffix)
	file, size, err := a.takeReserve(temp)
	if err != nil || file == nil {
		return nil, err
	}
	a.o.Logger.Warn("the disk is full: the reserve becomes a history segment", "segment", format.SegmentName(id))
	return a.beginSegment(id, temp, file, size)
}
