// Package hist is a histogram of durations with a bounded relative error.
//
// Values are nanoseconds. Each power of two is cut into 64 buckets, so that a value read back is at
// most 1.6 % above the one recorded; values under 128 ns are exact. The largest and the smallest
// recorded value and the sum are kept exactly. A Hist is not safe for concurrent use: each
// goroutine fills its own, and Merge adds them up.
package hist

import (
	"math/bits"
	"time"
)

const (
	subBits = 6
	sub     = 1 << subBits
	buckets = (64 - subBits) * sub
)

// Hist counts durations. The zero value is empty and ready.
type Hist struct {
	counts   []uint64
	n        uint64
	sum      float64
	min, max int64
}

// index is the bucket of v: the exponent of v above subBits, and the bits that follow its top one.
func index(v int64) int {
	if v < 2*sub {
		return int(v)
	}
	shift := bits.Len64(uint64(v)) - subBits - 1
	return shift*sub + int(v>>shift)
}

// highest is the largest value in bucket i.
func highest(i int) int64 {
	if i < 2*sub {
		return int64(i)
	}
	shift := i/sub - 1
	return (int64(i%sub+sub+1) << shift) - 1
}

// Record counts one duration; a negative one counts as 0.
func (h *Hist) Record(d time.Duration) { h.RecordN(d, 1) }

// RecordN counts a duration n times.
func (h *Hist) RecordN(d time.Duration, n uint64) {
	if n == 0 {
		return
	}
	v := max(int64(d), 0)
	if h.counts == nil {
		h.counts = make([]uint64, buckets)
	}
	if h.n == 0 || v < h.min {
		h.min = v
	}
	h.max = max(h.max, v)
	h.counts[index(v)] += n
	h.n += n
	h.sum += float64(v) * float64(n)
}

// Merge adds what o has counted.
func (h *Hist) Merge(o *Hist) {
	if o.n == 0 {
		return
	}
	if h.counts == nil {
		h.counts = make([]uint64, buckets)
	}
	for i, c := range o.counts {
		h.counts[i] += c
	}
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.max = max(h.max, o.max)
	h.n += o.n
	h.sum += o.sum
}

// Count is how many durations were recorded.
func (h *Hist) Count() uint64 { return h.n }

// Max is the largest duration recorded, 0 if there is none.
func (h *Hist) Max() time.Duration { return time.Duration(h.max) }

// Min is the smallest duration recorded, 0 if there is none.
func (h *Hist) Min() time.Duration { return time.Duration(h.min) }

// Mean is 0 if nothing was recorded.
func (h *Hist) Mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.n))
}

// Quantile is a duration that the share q of the recorded ones does not exceed: 0.99 for the 99th
// percentile. It is 0 if nothing was recorded.
func (h *Hist) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := min(max(uint64(q*float64(h.n)+0.5), 1), h.n)
	var seen uint64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			return time.Duration(min(max(highest(i), h.min), h.max))
		}
	}
	return time.Duration(h.max)
}
