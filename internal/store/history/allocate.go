package history

import (
	"errors"
	"io/fs"
	"sync/atomic"
	"time"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/growing"
	"vigil/internal/vfs"
)

// allocator allocates files ahead of need, in goroutines: the segment after the open one, and the reserve
// (reserve.go). DESIGN.md has the diagram of its states.
type allocator struct {
	*core
	cat *catalog
	rec *reclaimState // woken when there is room again

	ahead atomic.Int64 // the size of the next segment, 0 while there is none
	short atomic.Bool  // the last attempt failed, and next or reserve is missing

	// Guarded by core.mu.
	next        *openSegment // allocated, not yet in use
	nextID      uint64       // of the segment to allocate after next
	reserve     vfs.File     // allocated
	reserveSize int64
	// fitting is set while next and reserve must stay as they are: they are being resized or renamed.
	fitting bool
	// wanted asks for next and reserve, waited is set while the writer cannot go on without next.
	wanted, waited bool
	err            error // why the last attempt failed
	triedAt        time.Time
	// lacking is set from an attempt that failed to one that succeeds; the writer clears err to ask for another attempt.
	lacking bool
}

func (a *allocator) run() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		for (!a.wanted || a.fitting || a.next != nil && a.reserve != nil) && a.aliveLocked() == nil {
			a.mu.changed.Wait()
		}
		if a.aliveLocked() != nil {
			return
		}
		known := a.lacking
		err := a.allocateLocked()
		a.wanted, a.err, a.triedAt, a.lacking = false, err, time.Now(), err != nil
		switch {
		case errors.Is(err, kv.ErrAway) && !known:
			a.o.Logger.Warn("cannot make a history segment: rejecting writes until its directory is back", "error", err.Error())
		case kv.Shortage(err) && !known:
			a.o.Logger.Warn("cannot preallocate a history segment: rejecting writes until disk space is available", "error", err.Error())
		case err != nil && !known:
			a.o.Logger.Warn("cannot preallocate a history segment: retrying until it is needed", "error", err.Error())
		case err == nil && known:
			a.o.Logger.Info("preallocated a history segment again: accepting writes")
		}
		a.noteLocked()
		a.mu.changed.Broadcast()
		if err == nil && known {
			// What could not be rewritten for want of room may be now. rec comes before mu.
			a.mu.Unlock()
			a.rec.kick()
			a.mu.Lock()
		}
	}
}

// allocateLocked allocates the next segment and the reserve, if missing. It unlocks mu meanwhile.
func (a *allocator) allocateLocked() error {
	reserve := func(get func() (vfs.File, int64, error)) (err error) {
		for a.fitting {
			a.mu.changed.Wait()
		}
		if a.reserve == nil {
			var file vfs.File
			var size int64
			a.mu.Unlock()
			file, size, err = get()
			a.mu.Lock()
			a.reserve, a.reserveSize = file, size
		}
		return err
	}
	// A reserve that an earlier run left needs no space.
	if err := reserve(a.openReserve); err != nil {
		return err
	}
	for {
		if a.next == nil {
			if err := a.allocateNextLocked(); err != nil {
				return err
			}
		}
		err := reserve(a.makeReserve)
		// The writer may have taken next meanwhile.
		if a.next != nil || a.aliveLocked() != nil {
			return err
		}
	}
}

func (a *allocator) allocateNextLocked() error {
	id, waited := a.nextID, a.waited
	a.mu.Unlock()
	seg, err := a.prepare(id)
	if errors.Is(err, kv.ErrNoSpace) && waited {
		if last, serr := a.spendReserve(id); serr != nil || last != nil {
			seg, err = last, serr
		}
	}
	if err == nil {
		err = a.finish(seg)
	}
	a.mu.Lock()
	if err != nil {
		return err
	}
	a.next, a.waited = seg, false
	a.nextID++
	a.noteLocked()
	a.mu.changed.Broadcast()
	return nil
}

// prepare makes the file of a segment under a temporary name, its space allocated and its header in
// place.
func (a *allocator) prepare(id uint64) (*openSegment, error) {
	temp := a.path(format.SegmentName(id) + format.TempSuffix)
	if err := a.o.FS.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, a.allocationFailed(temp, err)
	}
	for size := a.cat.segmentSize(); ; size = smaller(size) {
		file, err := a.o.FS.Create(temp)
		if err != nil {
			return nil, a.allocationFailed(temp, err)
		}
		seg, err := a.beginSegment(id, temp, file, size)
		if err == nil || smaller(size) < a.o.leastSize() || !errors.Is(err, kv.ErrNoSpace) {
			return seg, err
		}
	}
}

// beginSegment allocates size bytes for file, whose name is temp, and writes the header.
func (a *allocator) beginSegment(id uint64, temp string, file vfs.File, size int64) (*openSegment, error) {
	var seg *growing.Segment
	err := file.Preallocate(size)
	if err == nil {
		seg, err = growing.Create(file, temp, format.NewHeader(a.identity(), id), size)
	}
	if err != nil {
		a.abandon(file, temp)
		return nil, a.allocationFailed(temp, err)
	}
	return &openSegment{Segment: seg, seg: &segment{id: id}}, nil
}

// finish makes a prepared segment durable and renames it to its final name. From then on its header must be intact. It
// abandons the segment if it fails.
func (a *allocator) finish(seg *openSegment) error {
	path := a.path(format.SegmentName(seg.Head.ID))
	err := a.syncFile(seg.File, seg.Path)
	if err == nil {
		err = a.o.FS.Rename(seg.Path, path)
	}
	if err == nil {
		seg.Path = path
		err = a.syncDir()
	}
	if err != nil {
		a.abandon(seg.File, seg.Path)
		return a.allocationFailed(path, err)
	}
	return nil
}

// noteLocked updates the fields that are read without the lock. It follows every change of next, reserve and err.
func (a *allocator) noteLocked() {
	size := int64(0)
	if a.next != nil {
		size = a.next.Alloc
	}
	a.ahead.Store(size)
	a.short.Store(a.err != nil && (a.next == nil || a.reserve == nil))
}
