package history

import (
	"sync/atomic"
	"time"
)

// The space allocated ahead (the next segment and the reserve), and the dead records of the open
// segment, which cannot be removed from it, stay in proportion to the live bytes and the write
// rate. So segments are small while the log is small and slow, and space that was allocated at a
// higher rate is cut when the rate falls.

const (
	// smallSegment is the least size of a segment, unless Options.SegmentBytes is less.
	smallSegment = 4 << 20
	// A segment lasts for segmentTime at the present rate, if it then has fastSegment bytes at
	// most: it is in memory until it is sealed.
	segmentTime, fastSegment = 2 * time.Second, 16 << 20
	// ratePeriod is how often the rate is measured.
	ratePeriod = time.Second
)

// sizes knows how large segments should be.
type sizes struct {
	most int64 // Options.SegmentBytes
	cat  *catalog
	// appended counts the bytes of batches since Open, rate is the recent number of them per
	// second.
	appended, rate atomic.Int64
}

// mergedSize returns how large a merged segment should be: a sixteenth of the live bytes.
func (s *sizes) mergedSize() int64 {
	least := min(s.most, smallSegment)
	if s.cat.manifest.Load() == nil {
		return least // the log is being opened
	}
	_, live := s.cat.countBytes()
	return min(max(least, live/16), s.most)
}

// nextSize returns how large the next segment should be: the same, or enough for some time of
// writing.
func (s *sizes) nextSize() int64 {
	fast := min(s.rate.Load()*int64(segmentTime/time.Second), fastSegment)
	return min(max(s.mergedSize(), fast), s.most)
}

// leastSize returns the least size of a file that is allocated ahead.
func (s *sizes) leastSize() int64 { return min(s.most, smallSegment) / 2 }

// keptSize returns how much of the last segment is kept for requests that make the store smaller.
func (s *sizes) keptSize() int64 { return min(s.most, smallSegment) / 4 }

// smaller returns the size to try next for a file that does not fit on the disk: reclaim may have
// freed a little less than it used.
func smaller(size int64) int64 { return size / 4 * 3 }
