package replica

import (
	"errors"
	"sync/atomic"
	"time"

	"vigil/internal/state/fsm"
)

// waiter is one request that waits for its result.
//
// The caller and the resolver agree by state which was first: a caller that leaves first does not touch the waiter again,
// a resolver that is first sends on done. So a waiter returns to the pool only from a caller that has received.
type waiter struct {
	state  atomic.Uint32
	done   chan struct{} // room for one
	result fsm.Result    // set before done
	marks  milestones    // set before done
	begun  time.Time     // when its group began, which is about when it came
	size   int           // of its request in the group
	grows  bool          // its request adds to the store
}

const (
	waiting uint32 = iota
	resolved
	left
)

// resolve gives w its result, unless the caller has left.
func (w *waiter) resolve(res fsm.Result, marks milestones) {
	if w.state.CompareAndSwap(waiting, resolved) {
		w.result, w.marks = res, marks
		w.done <- struct{}{}
	}
}

// leave notes that the caller does not wait any more. It returns false if the result is being delivered.
func (w *waiter) leave() bool { return w.state.CompareAndSwap(waiting, left) }

// take returns the result after done, and makes w ready for the next request.
func (w *waiter) take() fsm.Result {
	res := w.result
	w.result = fsm.Result{}
	w.state.Store(waiting)
	return res
}

// group is what becomes one entry.
type group struct {
	seq     uint64
	buf     []byte
	waiters []*waiter
	// begun is when the first request came. The keeper ends a group that is still being filled
	// at its next tick, so all its requests are about as old.
	begun time.Time
	marks milestones
	// results are kept by the apply goroutine between applying and resolving.
	results []fsm.Result
	// term is the one the group was proposed in, 0 while it is not.
	term uint64
	// cost is what the requests add to the store, in bytes.
	cost int64
	// conf is set for a configuration change, which is not proposed by way of Next.
	conf bool
}

// errLost is the result of a configuration change that was proposed and never takes effect.
var errLost = errors.New("lost with its leader")

// keepGroup bounds the memory that a group keeps when it is used again.
const keepGroup = 1 << 20

// resolve gives every waiter of g the same error.
func (g *group) resolve(err error) {
	for _, w := range g.waiters {
		if w != nil {
			w.resolve(fsm.Result{Err: err}, g.marks)
		}
	}
}

// resolveDone gives the waiters of g the available results. A resolved waiter may serve another request by now, so it is
// removed from g.
func (g *group) resolveDone() {
	for k, w := range g.waiters[:min(len(g.waiters), len(g.results))] {
		if w != nil {
			w.resolve(g.results[k], g.marks)
			g.waiters[k], g.results[k] = nil, fsm.Result{}
		}
	}
}
