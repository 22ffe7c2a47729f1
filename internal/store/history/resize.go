package history

import (
	"time"
)

// The space allocated ahead (the next segment and the reserve), and the dead records of the open segment, which cannot
// be removed from it, stay in proportion to the live bytes and the write rate. So segments are small while the log
// is small and slow, and space that was allocated at a higher rate is cut when the rate falls.

const (
	// smallSegment is what a segment has at least, unless Options.SegmentBytes is less.
	smallSegment = 4 << 20
	// segmentTime is how long a segment lasts at the present rate, up to the size fastSegment: it is in memory until it is sealed.
	segmentTime, fastSegment = 2 * time.Second, 16 << 20
	// fitPause is how often the rate is measured.
	fitPause = time.Second
)

// smaller returns the size to try next for a file that does not fit on the disk: reclaim may have freed a little less
// than it used.
func smaller(size int64) int64 { return size / 4 * 3 }

// leastSize is the least size of a file that is allocated ahead.
func (o *Options) leastSize() int64 { return min(o.SegmentBytes, smallSegment) / 2 }

// runResizer is the goroutine that measures the write rate and resizes the files for it.
func (a *allocator) runResizer() {
	tick := time.NewTicker(fitPause)
	defer tick.Stop()
	before, last := a.cat.appended.Load(), int64(0)
	for {
		select {
		case <-a.rec.stop.Done():
			return
		case <-tick.C:
		}
		now := a.cat.appended.Load()
		rate := (now - before) * int64(time.Second/fitPause)
		a.cat.rate.Store(max(rate, last))
		before, last = now, rate
		a.resize()
	}
}

// resize cuts the next segment and the reserve if they are much larger than they should be, and grows the reserve if it
// is much smaller.
func (a *allocator) resize() {
	size := a.cat.segmentSize()
	a.mu.Lock()
	defer a.mu.Unlock()
	next, reserve := a.next, a.reserve
	cutNext := next != nil && next.Alloc > size+size/4
	cutReserve := reserve != nil && a.reserveSize > size+size/4
	grow := reserve != nil && 2*a.reserveSize < size && a.err == nil
	if a.fitting || a.aliveLocked() != nil || !cutNext && !cutReserve && !grow {
		return
	}
	// Other goroutines do not take them meanwhile.
	a.fitting = true
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
		a.reserveSize = size
	}
	a.fitting = false
	a.noteLocked()
	a.mu.changed.Broadcast()
}
