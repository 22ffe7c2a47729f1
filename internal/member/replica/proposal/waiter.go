package proposal

import (
	"context"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// Waiter is one request that waits for its result.
//
// The caller and the resolver agree by state which was first: a caller that leaves first does not touch the waiter again,
// a resolver that is first sends on done. So a waiter returns to the pool only from a caller that has received.
type Waiter struct {
	state  atomic.Uint32
	done   chan struct{} // room for one
	result fsm.Result    // set before done
	marks  Milestones    // set before done
	begun  time.Time     // when its group began, which is about when the request was added
	size   int           // of its request in the group
	grows  bool          // its request adds to the store

	started *Started // set if Results returns it: no caller waits
	// own is the memory of started.
	own Started
}

// Started is a request that was added by Start or begun by StartRead, and its result. Of a read, only Result.Err is set.
type Started struct {
	Request fsm.Request
	Read    *kv.RangeRequest // instead of Request
	Tag     any              // of the caller of Start
	At      time.Time
	Result  fsm.Result
	Marks   Milestones

	w *Waiter
}

func newWaiter() *Waiter { return &Waiter{done: make(chan struct{}, 1)} }

const (
	waiting uint32 = iota
	resolved
	left
)

// resolve gives w its result, unless the caller has left. If the request was started it returns that, which the caller
// passes to Queue.deliver.
func (w *Waiter) resolve(res fsm.Result, marks Milestones) *Started {
	if !w.state.CompareAndSwap(waiting, resolved) {
		return nil
	}
	if s := w.started; s != nil {
		s.Result, s.Marks = res, marks
		return s
	}
	w.result, w.marks = res, marks
	w.done <- struct{}{}
	return nil
}

// leave notes that the caller does not wait any more. It returns false if the result is being delivered.
func (w *Waiter) leave() bool { return w.state.CompareAndSwap(waiting, left) }

// take returns the result after done, and makes w ready for the next request.
func (w *Waiter) take() fsm.Result {
	res := w.result
	w.result = fsm.Result{}
	w.state.Store(waiting)
	return res
}

// Wait waits for the result of a request, once. ok is false if ctx ended before: the request may still take effect, and of the
// milestones only Begun is set.
func (q *Queue) Wait(ctx context.Context, w *Waiter) (res fsm.Result, marks Milestones, ok bool) {
	begun := w.begun
	select {
	case <-w.done:
	case <-ctx.Done():
		if w.leave() {
			return fsm.Result{}, Milestones{Begun: begun}, false
		}
		<-w.done // the result is being delivered
	}
	marks = w.marks
	res = w.take()
	q.waiters.Put(w)
	return res, marks, true
}
