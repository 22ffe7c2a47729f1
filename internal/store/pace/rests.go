package pace

import (
	"runtime"
	"time"
)

const (
	// slice is how long background work goes on before it rests.
	slice = 500 * time.Microsecond
	// rest is how many times as long it rests with one processor, less with more; most is the longest rest.
	rest = 4
	most = 10 * time.Millisecond
	// quiet is how long no client must have made a request for it not to rest.
	quiet = 200 * time.Millisecond
)

// Rests makes work in the background rest while clients make requests. Go's scheduler lets a goroutine that computes
// go on for 10 ms, and looks at the network only if a processor has nothing else to run: with one processor each
// step of a request would wait that long. Yielding the processor does not help, because it is not the network's turn
// then. It is owned by one goroutine.
type Rests struct {
	requests func() uint64
	began    time.Time // of the slice
	seen     uint64    // requests, when they were last looked at
	at       time.Time // when that number changed
}

// NewRests begins a slice. requests returns how many requests there were. Clients are taken for busy at first: one of them has asked for
// the work.
func NewRests(requests func() uint64) *Rests {
	now := time.Now()
	return &Rests{requests: requests, began: now, at: now}
}

// Pause rests if a slice is over. The caller holds no lock, and calls it every 100 µs or so. A nil Rests does not rest.
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
