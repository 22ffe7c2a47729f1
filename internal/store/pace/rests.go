package pace

import (
	"runtime"
	"time"
)

const (
	// slice is how long background work runs before it rests.
	slice = 500 * time.Microsecond
	// A rest is rest times as long as the work with one processor, shorter with more; most is the
	// longest rest.
	rest = 4
	most = 10 * time.Millisecond
	// quiet is how long clients must have made no request before background work stops resting.
	quiet = 200 * time.Millisecond
)

// Rests makes background work rest while clients make requests. Go's scheduler lets a goroutine
// that computes go on for 10 ms, and looks at the network only if a processor has nothing else to
// run: with one processor each step of a request would wait that long. Yielding the processor does
// not help, because it is not the network's turn then. One goroutine owns a Rests.
type Rests struct {
	requests func() uint64
	began    time.Time // of the slice
	seen     uint64    // number of requests at the last check
	at       time.Time // when that number changed
}

// NewRests begins a slice. requests returns the number of requests so far. At first it assumes that
// clients are busy: one of them has asked for the work.
func NewRests(requests func() uint64) *Rests {
	now := time.Now()
	return &Rests{requests: requests, began: now, at: now}
}

// Pause rests if a slice is over. The caller holds no lock, and calls Pause every 100 µs or so. A
// nil Rests does not rest.
func (r *Rests) Pause() {
	if r == nil {
		return
	}
	now := time.Now()
	worked := now.Sub(r.began)
	if worked < slice {
		return
	}
	if n := r.requests(); n != r.seen {
		r.seen, r.at = n, now
	}
	if now.Sub(r.at) < quiet {
		time.Sleep(min(worked*rest/time.Duration(runtime.GOMAXPROCS(0)), most))
		now = time.Now()
	}
	r.began = now
}
