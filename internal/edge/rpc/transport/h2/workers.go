package h2

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Workers are goroutines that are kept to run functions. A new goroutine first grows its stack,
// which is a large part of the cost of a short request.
type Workers struct {
	most int           // how many idle goroutines are kept
	keep time.Duration // how often goroutines end that were not used since the last time
	// starting counts functions that wait for a processor.
	starting atomic.Int32

	mu struct {
		sync.Mutex
		idle   []*worker // the last one is used first: its stack is in the caches
		unused int       // how many at the beginning of idle were not used since the last endUnused
		timer  *time.Timer
		timed  bool // the timer runs
		closed bool
	}
}

type worker struct{ next chan func() }

// keepIdle is how long an idle goroutine is kept at least. Under load a goroutine is used again
// much sooner. When a client has opened many streams at once, hundreds of stacks are most of the
// memory, and they also let the heap grow more until the next collection.
const keepIdle = 250 * time.Millisecond

// NewWorkers makes Workers that keep up to most idle goroutines, each for a moment.
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

// maxStarting is how many functions may wait for each processor before Yield lets them start.
const maxStarting = 2

// Yield lets waiting functions start first if there are many. Without it, a caller of Run in a loop
// would need a goroutine for each function, although most functions take only a moment. The caller
// must not hold a lock that the functions need.
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

// scheduleTrim starts the timer if there are idle workers. mu must be held.
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

// endUnused ends the workers that were not used since its last run.
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

// Close ends all idle goroutines, and the others once they are idle. Run may still be called.
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
