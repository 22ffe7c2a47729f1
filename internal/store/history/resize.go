package history

import (
	"time"
)

// What is allocated ahead, the next segment and the reserve, and what is dead in the open segment,
// which cannot be taken out of it, shall be in proportion to what is live and to how fast it grows.
// So segments are small while the log is small and slow, and what was allocated in busier times is
// cut when they are over.

const (
	// smallSegment is what a segment has at least, unless Options.SegmentBytes is less.
	smallSegment = 4 << 20
	// segmentTime is how long a segment should last at the present rate.
	segmentTime = 8 * time.Second
	// fitPause is how often the rate is measured.
	fitPause = time.Second
)

// smaller is the size to try next for what does not fit on the disk: what reclaim has given back may be a
// little less than it took.
func smaller(size int64) int64 { return size / 4 * 3 }

// leastSize is the least size of what is allocated ahead.
func (o *Options) leastSize() int64 { return min(o.SegmentBytes, smallSegment) / 2 }

// resizer is the goroutine that measures the rate and cuts what was allocated for a higher one.
func (a *allocator) resizer() {
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
		a.fit()
	}
}

// fit cuts the next segment and the reserve if they are much larger than they should be, and lets the
// reserve grow if it is much smaller.
func (a *allocator) fit() {
	size := a.cat.segmentSize()
	a.mu.Lock()
	defer a.mu.Unlock()
	next, reserve := a.next, a.reserve
	cutNext := next != nil && next.alloc > size+size/4
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
		nextErr = next.file.Truncate(size)
	}
	switch {
	case cutReserve:
		reserveErr = reserve.Truncate(size)
	case grow:
		reserveErr = reserve.Preallocate(size)
	}
	a.mu.Lock()
	// What could not be cut stays as it is, and one that could not grow is still the smaller one.
	if cutNext && nextErr == nil {
		next.alloc = size
	}
	if (cutReserve || grow) && reserveErr == nil {
		a.reserveSize = size
	}
	a.fitting = false
	a.noteLocked()
	a.mu.changed.Broadcast()
}
