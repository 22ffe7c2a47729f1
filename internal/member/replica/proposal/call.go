package proposal

import (
	"context"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// Call is a request that was started, or a read, until it has its result. Of a read, only Result.Err is
// set.
type Call struct {
	Request fsm.Request
	Read    *kv.RangeRequest // instead of Request
	Tag     any              // of the caller of Start
	At      time.Time        // when it was started
	Result  fsm.Result
	Marks   Milestones

	begun time.Time // when its group began, which is about when the request was added
	size  int       // of its request in the group
	grows bool      // its request adds to the store
	// waits is set if its caller calls Wait: it is not among the Results.
	waits bool
	done  chan struct{} // has room for one; receives when Result is set, if waits is set
}

func newCall() *Call { return &Call{done: make(chan struct{}, 1)} }

// Begun returns when the group of c began. The caller of Wait may call it before.
func (c *Call) Begun() time.Time { return c.begun }

// setResult gives c its result. It returns c if Results must return that.
func (c *Call) setResult(res fsm.Result, marks Milestones) *Call {
	c.Result, c.Marks = res, marks
	if c.waits {
		c.done <- struct{}{}
		return nil
	}
	return c
}

// Start adds a request whose result Results returns, with the tag. at is when it arrived. The queue keeps
// what the request refers to until then. TakeUnproposed must follow. Errors: as Propose. It waits for no
// disk: it fails with ErrUnmeasured instead.
func (q *Queue) Start(ctx context.Context, r fsm.Request, cost int64, tag any, at time.Time) error {
	c := q.calls.Get().(*Call)
	c.Request, c.Tag, c.At = r, tag, at
	err := q.add(ctx, c, cost, nil)
	if err != nil {
		q.recycle(c)
	}
	return err
}

// StartWaited is Start for a caller that waits for the result, once, by Wait.
func (q *Queue) StartWaited(ctx context.Context, r fsm.Request, cost int64, at time.Time) (*Call, error) {
	c := q.calls.Get().(*Call)
	c.Request, c.At, c.waits = r, at, true
	err := q.add(ctx, c, cost, nil)
	if err == ErrUnmeasured {
		var free []int64
		if free, err = q.o.Space.Measure(ctx); err == nil {
			err = q.add(ctx, c, cost, free)
		}
	}
	if err != nil {
		q.recycle(c)
		return nil, err
	}
	return c, nil
}

// Wait waits for the result. It returns false if ctx ended before: the request may still take effect, and
// the result must not be read. Otherwise the caller passes c to Recycle.
func (c *Call) Wait(ctx context.Context) bool {
	select {
	case <-c.done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// TakeUnproposed reports whether a request was started that the raft goroutine may not know of, to one
// caller: that wakes it.
func (q *Queue) TakeUnproposed() bool { return q.unproposed.Load() && q.unproposed.Swap(false) }

// StartRead returns a read, which is not proposed and has no result before Deliver. at is when it arrived.
func (q *Queue) StartRead(req *kv.RangeRequest, tag any, at time.Time) *Call {
	c := q.calls.Get().(*Call)
	c.Read, c.Tag, c.At = req, tag, at
	return c
}

// Recycle ends the use of calls that have their results.
func (q *Queue) Recycle(list ...*Call) {
	for i, c := range list {
		list[i] = nil
		q.recycle(c)
	}
}

func (q *Queue) recycle(c *Call) {
	*c = Call{done: c.done}
	q.calls.Put(c)
}
