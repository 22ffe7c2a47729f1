package h2

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Workers are goroutines that are kept to run functions on. A new goroutine first has to grow its stack, which is a large
// part of what a short request costs.
type Workers struct {
	most int           // idle ones that are kept
	keep time.Duration // how often those end that were not used since the last time
	// starting is how many functions wait for a processor.
	starting atomic.Int32

	mu struct {
		sync.Mutex
		idle   []*worker // the last one is the first to be used: its stack is in the caches
		unused int       // how many at the beginning of idle were not used since the last trim
		timer  *time.Timer
		timed  bool // the timer runs
		closed bool
	}
}

type worker struct{ next chan func() }

// keepIdle is how long an idle goroutine is kept at least: under load each is used much sooner again. After many streams were opened at
// once, the stacks of hundreds are most of the memory, and let the heap grow more until the next collection.
const keepIdle = 250 * time.Millisecond

// NewWorkers keeps up to most idle goroutines, each for a moment.
func NewWorkers(most int) *Workers { return &Workers{most: most, keep: keepIdle} }

// Run runs f on a goroutine. It does not wait.
func (p *Workers) Run(f func()) {
	p.starting.Add(1)
	p.mu.Lock()
	if n := len(p.mu.idle); n > 0 {
		w := p.mu.idle[n-1]
		p.mu.idle = p.mu.idle[:n-1]
		p.mu.unused = min(p.mu.unused, n-1)
		p.mu.Unlock()
		w.next <- f
		return
	}
	p.mu.Unlock()
	go p.workLoop(f)
}

// maxStarting is how many functions for each processor may wait for it before Yield lets them begin.
const maxStarting = 2

// Yield lets functions begin first if many wait: a caller that runs one after the other would need a goroutine for each, although
// most of them take a moment only. It must not hold a lock that they need.
func (p *Workers) Yield() {
	if int(p.starting.Load()) > maxStarting*runtime.GOMAXPROCS(0) {
		runtime.Gosched()
	}
}

func (p *Workers) workLoop(f func()) {
	var w *worker
	for {
		p.starting.Add(-1)
		f()
		if w == nil {
			w = &worker{next: make(chan func(), 1)}
		}
		p.mu.Lock()
		if p.mu.closed || len(p.mu.idle) >= p.most {
			p.mu.Unlock()
			return
		}
		p.mu.idle = append(p.mu.idle, w)
		p.scheduleTrim()
		p.mu.Unlock()
		if f = <-w.next; f == nil {
			return
		}
	}
}

// scheduleTrim starts the timer if there are idle workers. mu is held.
func (p *Workers) scheduleTrim() {
	switch {
	case p.mu.timed || p.mu.closed || len(p.mu.idle) == 0:
		return
	case p.mu.timer == nil:
		p.mu.timer = time.AfterFunc(p.keep, p.endUnused)
	default:
		p.mu.timer.Reset(p.keep)
	}
	p.mu.timed = true
}

// endUnused ends the workers that were not used since the last trim.
func (p *Workers) endUnused() {
	p.mu.Lock()
	n := min(p.mu.unused, len(p.mu.idle))
	over := slices.Clone(p.mu.idle[:n])
	p.mu.idle = slices.Delete(p.mu.idle, 0, n)
	p.mu.unused = len(p.mu.idle)
	p.mu.timed = false
	p.scheduleTrim()
	p.mu.Unlock()
	for _, w := range over {
		w.next <- nil
	}
}

// Close ends the idle goroutines, and others when they are idle. Run may still be called.
func (p *Workers) Close() {
	p.mu.Lock()
	idle := p.mu.idle
	p.mu.idle, p.mu.unused, p.mu.closed = nil, 0, true
	if p.mu.timer != nil {
		p.mu.timer.Stop()
	}
	p.mu.Unlock()
	for _, w := range idle {
		w.next <- nil
	}
}
