package h2

import "sync"

// Workers are goroutines that are kept to run functions on. A new goroutine first has to grow its stack, which is a large
// part of what a short request costs.
type Workers struct {
	most int // idle ones that are kept

	mu struct {
		sync.Mutex
		idle   []*worker // the last one is the first to be used: its stack is in the caches
		closed bool
	}
}

type worker struct{ next chan func() }

// NewWorkers keeps up to most idle goroutines.
func NewWorkers(most int) *Workers { return &Workers{most: most} }

// Run runs f on a goroutine. It does not wait.
func (p *Workers) Run(f func()) {
	p.mu.Lock()
	if n := len(p.mu.idle); n > 0 {
		w := p.mu.idle[n-1]
		p.mu.idle = p.mu.idle[:n-1]
		p.mu.Unlock()
		w.next <- f
		return
	}
	p.mu.Unlock()
	go p.work(f)
}

func (p *Workers) work(f func()) {
	var w *worker
	for {
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
		p.mu.Unlock()
		if f = <-w.next; f == nil {
			return
		}
	}
}

// Close ends the idle goroutines, and others when they are idle. Run may still be called.
func (p *Workers) Close() {
	p.mu.Lock()
	idle := p.mu.idle
	p.mu.idle, p.mu.closed = nil, true
	p.mu.Unlock()
	for _, w := range idle {
		w.next <- nil
	}
}
