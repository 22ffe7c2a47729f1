package history

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs"
)

// The reserve is a file of the size of a segment, allocated and never written, that stays in the
// directory over restarts. It is what can still be made when the disk is full:
//
//   - the segment behind the open one, if batches that must be applied do not fit any more (the
//     allocator turns the reserve into it when the writer waits), or
//   - the output of whoever rewrites segments, which needs space before it gives any back:
//     takeReserve, if a file of its own cannot be allocated.
//
// While the next segment or the reserve is missing for want of space, Room refuses what would add to
// the store; RoomToFree goes on taking what makes it smaller, as long as there is something left for
// it. The allocator tries again from time to time and so everything comes back by itself.

// reserveName is the file. It has a name that no segment has, so that a version that does not know
// it only warns.
const reserveName = "reserve"

// takeReserve makes the reserve a file of that name, which the directory must not have, and hands it
// out open, with its size: that much is allocated and zero. It returns no file if there is no reserve
// now.
//
// It is for a rewriter whose own allocation failed with kv.ErrNoSpace. The name should be one with
// tempSuffix until the output is whole, so that a crash leaves nothing behind but a reserve that is
// to be made again. When the rewriter has removed its input it calls refillReserve; until then new
// puts are refused.
func (l *Log) takeReserve(path string) (vfs.File, int64, error) {
	l.mu.Lock()
	for l.mu.fitting {
		l.mu.changed.Wait()
	}
	file, size := l.mu.reserve, l.mu.reserveSize
	if file == nil {
		l.mu.Unlock()
		return nil, 0, nil
	}
	// The allocator must not take the file for a reserve while it still has the name of one.
	l.mu.fitting = true
	l.mu.reserve = nil
	l.noteRoomLocked()
	l.mu.Unlock()
	err := l.o.FS.Rename(l.path(reserveName), path)
	l.mu.Lock()
	l.mu.fitting = false
	l.mu.changed.Broadcast()
	l.mu.Unlock()
	if err != nil {
		_ = file.Close()
		l.refillReserve()
		if err = fmt.Errorf("history: take the reserve: %w", err); final(err) {
			err = l.fail(err)
		}
		return nil, 0, err
	}
	return file, size, nil
}

// refillReserve has the reserve made again if it is missing, in the background.
func (l *Log) refillReserve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.reserve == nil {
		l.mu.allocate = true
		l.mu.changed.Broadcast()
	}
}

// openReserve opens the reserve that an earlier life left, whole. It returns nil if there is none.
func (l *Log) openReserve() (vfs.File, int64, error) {
	path := l.path(reserveName)
	file, err := l.o.FS.OpenWrite(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, l.allocationFailed(path, err)
	}
	size, err := file.Size()
	if err == nil && size >= l.o.leastSize() && size <= l.o.SegmentBytes {
		// It may have lost its space to a crash before it was durable.
		if err = file.Preallocate(size); err == nil {
			return file, size, nil
		}
	}
	// One of another segment size, one that a crash cut short, or holes: it is made again.
	_ = file.Close()
	if rerr := l.o.FS.Remove(path); rerr != nil {
		err = rerr
	}
	if err != nil && vfs.CauseOf(err) != vfs.NoSpace {
		return nil, 0, l.allocationFailed(path, err)
	}
	return nil, 0, nil
}

// makeReserve makes the reserve. There is none.
func (l *Log) makeReserve() (vfs.File, int64, error) {
	path := l.path(reserveName)
	file, err := l.o.FS.Create(path)
	if err != nil {
		return nil, 0, l.allocationFailed(path, err)
	}
	size := l.segmentSize()
	err = file.Preallocate(size)
	for smaller(size) >= l.o.leastSize() && vfs.CauseOf(err) == vfs.NoSpace {
		size = smaller(size)
		if err = file.Truncate(0); err == nil { // gives back what was allocated of it
			err = file.Preallocate(size)
		}
	}
	if err == nil {
		err = l.syncFile(file, path)
	}
	if err == nil {
		err = l.syncDir()
	}
	if err != nil {
		_ = file.Close()
		_ = l.o.FS.Remove(path) // gives back what was allocated of it
		return nil, 0, l.allocationFailed(path, err)
	}
	return file, size, nil
}

// spendReserve makes the reserve the segment id.
func (l *Log) spendReserve(id uint64) (*openSegment, error) {
	temp := l.path(segmentName(id) + tempSuffix)
	file, size, err := l.takeReserve(temp)
	if err != nil || file == nil {
		return nil, err
	}
	l.o.Logger.Warn("the disk is full: the reserve becomes a history segment", "segment", segmentName(id))
	return l.beginSegment(id, temp, file, size)
}

// Room returns nil while there is room for what adds to the store: the segment behind the open one
// and the reserve are there, or are being made. Otherwise the error is a kv.Shortage, or another one
// of the allocation, which is tried again. Ask before taking on new writes; what is already taken on fits into the open
// segment as long as that has place. Asking makes the log try again from time to time. It takes no
// lock while there is room.
func (l *Log) Room() error {
	if l.roomy.Load() {
		return nil
	}
	mu := &l.mu
	mu.Lock()
	defer mu.Unlock()
	if err := l.aliveLocked(); err != nil {
		return err
	}
	if kv.Shortage(mu.sealErr) {
		return mu.sealErr // the sealer tries again
	}
	if mu.allocErr == nil || mu.next != nil && mu.reserve != nil {
		return nil
	}
	if !mu.allocate && time.Since(mu.triedAt) >= allocatePause {
		mu.allocate = true
		mu.changed.Broadcast()
	}
	return mu.allocErr
}

// kept is how much of the last segment is for what makes the store smaller.
func (o *Options) kept() int64 { return min(o.SegmentBytes, smallSegment) / 4 }

// Allocated returns how many bytes fit whatever the disk has: those of the next segment, or while there is none
// what is left of the open one. kept of them are for what makes the store smaller. The reserve does not count: a
// rewrite may need it. It takes no lock.
func (l *Log) Allocated() (bytes, kept int64) {
	if bytes = l.ahead.Load(); bytes == 0 {
		bytes = l.left.Load()
	}
	return bytes, l.o.kept()
}

// RoomToFree is Room for what makes the store smaller, such as deletions and compactions, which are
// small themselves: there is room for them while the next segment or the reserve is there, or half of
// what is kept for them. The other half is for those that were taken on before.
func (l *Log) RoomToFree() error {
	err := l.Room()
	if !kv.Shortage(err) {
		return err
	}
	l.mu.Lock()
	more := l.mu.next != nil || l.mu.reserve != nil
	l.mu.Unlock()
	if more || l.left.Load() >= l.o.kept()/2 {
		return nil
	}
	return err
}

// noteRoomLocked notes whether Room has nothing to say, and the size of the next segment. It follows every
// change of what Room and Allocated look at.
func (l *Log) noteRoomLocked() {
	mu := &l.mu
	ahead := int64(0)
	if mu.next != nil {
		ahead = mu.next.alloc
	}
	l.ahead.Store(ahead)
	l.roomy.Store(mu.err == nil && !mu.closed && mu.sealErr == nil && (mu.allocErr == nil || mu.next != nil && mu.reserve != nil))
}
