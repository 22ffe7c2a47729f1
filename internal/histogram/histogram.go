// Package histogram counts durations in buckets whose upper bounds double, like etcd's metrics.
// Counting takes no lock and allocates nothing.
package histogram

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Histogram counts durations. Its methods are safe for concurrent use. Make one with New.
type Histogram struct {
	first   time.Duration
	sum     atomic.Int64
	buckets []atomic.Uint64
}

// New returns a histogram with a number of upper bounds: first, 2*first, 4*first and so on. An
// additional last bucket counts longer durations.
func New(first time.Duration, bounds int) *Histogram {
	return &Histogram{first: first, buckets: make([]atomic.Uint64, bounds+1)}
}

// Observe counts a duration. A negative duration counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	i := 0
	if d > h.first {
		i = min(bits.Len64(uint64((d-1)/h.first)), len(h.buckets)-1)
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(d))
}

// Read returns the counts. A duration observed concurrently may be in Sum and not in a bucket, or
// the reverse.
func (h *Histogram) Read() Snapshot {
	s := Snapshot{First: h.first, Sum: time.Duration(h.sum.Load()),
		Buckets: make([]uint64, len(h.buckets))}
	for i := range h.buckets {
		s.Buckets[i] = h.buckets[i].Load()
	}
	return s
}

// Snapshot is the state of a histogram. Buckets are not cumulative. The upper bound of the first
// bucket is First, the bound of each further bucket but the last is twice the previous bound.
type Snapshot struct {
	First   time.Duration
	Buckets []uint64
	Sum     time.Duration
}

// Count returns the number of durations.
func (s Snapshot) Count() (n uint64) {
	for _, b := range s.Buckets {
		n += b
	}
	return n
}

// Cumulative returns the number of durations up to each bound, by the bound in units of unit.
func (s Snapshot) Cumulative(unit time.Duration) map[float64]uint64 {
	out := make(map[float64]uint64, len(s.Buckets))
	var n uint64
	for i, b := range s.Buckets[:max(len(s.Buckets)-1, 0)] {
		n += b
		out[float64(s.First<<i)/float64(unit)] = n
	}
	return out
}
