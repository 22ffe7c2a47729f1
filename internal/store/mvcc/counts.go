package mvcc

import (
	"sync/atomic"
	"time"

	"vigil/internal/histogram"
	"vigil/internal/store/pace"
)

// counts counts the work of a store since Open. Counting takes no lock.
type counts struct {
	ranges, puts, deletes, txns atomic.Uint64
	putBytes                    atomic.Uint64

	dropped       atomic.Uint64
	lastTrimmed   atomic.Int64 // unix seconds
	slices, trims *histogram.Histogram
}

// The bounds are the bounds of etcd's metrics.
func (c *counts) init() {
	c.slices = histogram.New(500*time.Microsecond, 14)
	c.trims = histogram.New(100*time.Millisecond, 14)
}

// newRests returns Rests that pause background work while clients make requests.
func (s *Store) newRests() *pace.Rests {
	c := &s.counts
	return pace.NewRests(func() uint64 {
		return c.ranges.Load() + c.puts.Load() + c.deletes.Load() +
			c.txns.Load()
	})
}

// Counts describes the work of a store since Open.
type Counts struct {
	// Ranges, Puts and Deletes count operations, including operations in transactions; Txns counts
	// the transactions of more than one operation. Ranges whose results are discarded do not count.
	Ranges, Puts, Deletes, Txns uint64
	// PutBytes is the size of the keys and values put.
	PutBytes uint64
	// DroppedRecords counts the records that trimming after compactions has dropped from the index.
	// LastTrimmed is the time of the last trim, zero if there was none. Slices is how long the
	// writer had to wait at a time, Trims how long whole trims took.
	DroppedRecords uint64
	LastTrimmed    time.Time
	Slices, Trims  histogram.Snapshot
}

// Counts returns the current counts.
func (s *Store) Counts() Counts {
	c := &s.counts
	out := Counts{
		Ranges: c.ranges.Load(), Puts: c.puts.Load(), Deletes: c.deletes.Load(),
		Txns:           c.txns.Load(),
		PutBytes:       c.putBytes.Load(),
		DroppedRecords: c.dropped.Load(), Slices: c.slices.Read(), Trims: c.trims.Read(),
	}
	if at := c.lastTrimmed.Load(); at != 0 {
		out.LastTrimmed = time.Unix(at, 0)
	}
	return out
}

// tally counts the operations of one request.
type tally struct{ ranges, puts, deletes, putBytes uint64 }

// addRequest counts the operations of a request.
func (c *counts) addRequest(t tally) {
	for _, n := range []struct {
		counter *atomic.Uint64
		by      uint64
	}{{&c.ranges, t.ranges}, {&c.puts, t.puts}, {&c.deletes, t.deletes}} {
		if n.by > 0 {
			n.counter.Add(n.by)
		}
	}
	if t.putBytes > 0 {
		c.putBytes.Add(t.putBytes)
	}
	if t.ranges+t.puts+t.deletes > 1 {
		c.txns.Add(1)
	}
}
