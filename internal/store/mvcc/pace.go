package mvcc

import (
	"runtime"
	"time"
)

const (
	// paceSlice is how long background work goes on before it rests.
	paceSlice = 500 * time.Microsecond
	// paceRest is how many times as long it rests with one processor, less with more; paceMost is the longest rest.
	paceRest = 4
	paceMost = 10 * time.Millisecond
	// paceQuiet is how long no client must have made a request for it not to rest.
	paceQuiet = 200 * time.Millisecond
)

// pace makes work in the background rest while clients make requests. Go's scheduler lets a goroutine that computes
// go on for 10 ms, and looks at the network only if a processor has nothing else to run: with one processor each
// step of a request would wait that long. Yielding the processor does not help, because it is not the network's turn
// then. It is owned by one goroutine.
type pace struct {
	store *Store
	began time.Time // of the slice
	seen  uint64    // requests, when they were last looked at
	at    time.Time // when that number changed
}

// newPace begins a slice. The store is taken for busy at first: a client has asked for the work.
func (s *Store) newPace() *pace {
	now := time.Now()
	return &pace{store: s, began: now, at: now}
}

// pause rests if a slice is over. No lock is held. It is called every 100 µs or so. A nil pace has no rests.
func (p *pace) pause() {
	if p == nil {
		return
	}
	now := time.Now()
	worked := now.Sub(p.began)
	if worked < paceSlice {
		return
	}
	c := &p.store.counts
	if n := c.ranges.Load() + c.puts.Load() + c.deletes.Load() + c.txns.Load(); n != p.seen {
		p.seen, p.at = n, now
	}
	if now.Sub(p.at) < paceQuiet {
		time.Sleep(min(worked*paceRest/time.Duration(runtime.GOMAXPROCS(0)), paceMost))
		now = time.Now()
	}
	p.began = now
}
