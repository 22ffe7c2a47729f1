// Package histogram counts durations in buckets whose upper bounds double, which is how etcd's metrics
// are made. Counting takes no lock and no memory.
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

// New returns a histogram with a number of upper bounds: first, twice that, and so on. A duration above
// the last one is counted in a bucket of its own.
func New(first time.Duration, bounds int) *Histogram {
	return &Histogram{first: first, buckets: make([]atomic.Uint64, bounds+1)}
}

// Observe counts a duration. A negative one counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	i := 0
	if d > h.first {
		i = min(bits.Len64(uint64((d-1)/h.first)), len(h.buckets)-1)
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(d))
}

// Read returns what was counted. Durations that are observed meanwhile may be in Sum and not in a
// bucket, or the other way round.
func (h *Histogram) Read() Snapshot {
	s := Snapshot{First: h.first, Sum: time.Duration(h.sum.Load()), Buckets: make([]uint64, len(h.buckets))}
	for i := range h.buckets {
		s.Buckets[i] = h.buckets[i].Load()
	}
	return s
}

// Snapshot is what a histogram has counted. Buckets are not cumulative; the upper bound of the first is
// First, that of each other one but the last is twice that of the one before.
type Snapshot struct {
	First   time.Duration
	Buckets []uint64
	Sum     time.Duration
}

// Count returns how many durations were counted.
func (s Snapshot) Count() (n uint64) {
	for _, b := range s.Buckets {
		n += b
	}
	return n
}

// Cumulative returns, for each bound in units of unit, how many durations were not longer.
func (s Snapshot) Cumulative(unit time.Duration) map[float64]uint64 {
	out := make(map[float64]uint64, len(s.Buckets))
	var n uint64
	for i, b := range s.Buckets[:max(len(s.Buckets)-1, 0)] {
		n += b
		out[float64(s.First<<i)/float64(unit)] = n
	}
	return out
}
