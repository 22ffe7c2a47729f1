// Package position has the applied position of a member, and lets reads wait for it.
package position

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Applied is the position of the log up to which results can be read and are published, and the
// reads that wait for a later one. Reads that wait for the same position, and came between the same
// two calls of Expire, share one entry. The zero value is ready; it is safe for concurrent use.
type Applied struct {
	index atomic.Uint64
	mu    struct {
		sync.Mutex
		waiting []*Wait // by index, and by age for the same one
		round   uint64  // counts the calls of Expire
		err     error
	}
}

// Wait is one entry.
type Wait struct {
	index uint64
	since time.Time
	round uint64
	done  chan struct{}
	err   error // set before done is closed
}

// Done is closed when the position was reached, or the wait has failed.
func (w *Wait) Done() <-chan struct{} { return w.done }

// Err returns why the wait has failed, nil if the position was reached. It is called after Done was
// closed.
func (w *Wait) Err() error { return w.err }

// Since returns when the first of the reads that share the entry came.
func (w *Wait) Since() time.Time { return w.since }

// Load returns the position.
func (p *Applied) Load() uint64 { return p.index.Load() }

// Join returns the entry to wait on for index, nil if it is applied already.
func (p *Applied) Join(index uint64) *Wait {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.index.Load() >= index {
		return nil
	}
	// The last entry of the index is the youngest.
	i, _ := slices.BinarySearchFunc(p.mu.waiting, index+1,
		func(w *Wait, index uint64) int { return cmp.Compare(w.index, index) })
	if i > 0 && p.mu.waiting[i-1].index == index && p.mu.waiting[i-1].round == p.mu.round {
		return p.mu.waiting[i-1]
	}
	w := &Wait{index: index, since: time.Now(), round: p.mu.round, done: make(chan struct{})}
	if p.mu.err != nil {
		w.err = p.mu.err
		close(w.done)
		return w
	}
	p.mu.waiting = slices.Insert(p.mu.waiting, i, w)
	return w
}

// Advance sets the position, and wakes readers that wait for it or an earlier one. The apply
// goroutine calls it.
func (p *Applied) Advance(index uint64) {
	p.index.Store(index)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.mu.waiting) && p.mu.waiting[n].index <= index {
		close(p.mu.waiting[n].done)
		n++
	}
	p.mu.waiting = slices.Delete(p.mu.waiting, 0, n)
}

// Expire fails readers that have waited since before a time. It is called regularly.
func (p *Applied) Expire(before time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.round++
	p.mu.waiting = slices.DeleteFunc(p.mu.waiting, func(w *Wait) bool {
		if !w.since.Before(before) {
			return false
		}
		w.err = err
		close(w.done)
		return true
	})
}

// Close fails all waiting readers, and all later ones.
func (p *Applied) Close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.err = err
	for _, w := range p.mu.waiting {
		w.err = err
		close(w.done)
	}
	p.mu.waiting = nil
}

// Len returns how many entries wait.
func (p *Applied) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.waiting)
}
