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

// mergedSize returns how large a merged segment should be: a sixteenth of what is live, at most
// Options.SegmentBytes.
func (l *Log) mergedSize() int64 {
	most := l.o.SegmentBytes
	least := min(most, smallSegment)
	if l.view.Load() == nil {
		return least
	}
	_, live := l.Size()
	return min(max(least, live/16), most)
}

// segmentSize returns how large the next segment should be: that, or enough for some time of writing.
func (l *Log) segmentSize() int64 {
	return min(max(l.mergedSize(), l.rate.Load()*int64(segmentTime/time.Second)), l.o.SegmentBytes)
}

// fitter is the goroutine that measures the rate and cuts what was allocated for a higher one.
func (l *Log) fitter() {
	tick := time.NewTicker(fitPause)
	defer tick.Stop()
	before, last := l.appended.Load(), int64(0)
	for {
		select {
		case <-l.rec.stop.Done():
			return
		case <-tick.C:
		}
		now := l.appended.Load()
		rate := (now - before) * int64(time.Second/fitPause)
		l.rate.Store(max(rate, last))
		before, last = now, rate
		l.fit()
	}
}

// fit cuts the next segment and the reserve if they are much larger than they should be, and lets the
// reserve grow if it is much smaller.
func (l *Log) fit() {
	size := l.segmentSize()
	mu := &l.mu
	mu.Lock()
	defer mu.Unlock()
	next, reserve := mu.next, mu.reserve
	cutNext := next != nil && next.alloc > size+size/4
	cutReserve := reserve != nil && mu.reserveSize > size+size/4
	grow := reserve != nil && 2*mu.reserveSize < size && mu.allocErr == nil
	if mu.fitting || l.aliveLocked() != nil || !cutNext && !cutReserve && !grow {
		return
	}
	// Nobody takes them meanwhile.
	mu.fitting = true
	mu.Unlock()
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
	mu.Lock()
	// What could not be cut stays as it is, and one that could not grow is still the smaller one.
	if cutNext && nextErr == nil {
		next.alloc = size
	}
	if (cutReserve || grow) && reserveErr == nil {
		mu.reserveSize = size
	}
	mu.fitting = false
	l.noteRoomLocked()
	mu.changed.Broadcast()
}
