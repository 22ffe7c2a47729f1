package proposal

import (
	"context"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// Call is a request that was started, or a read, until it has its result. Of a read, only
// Result.Err is set.
type Call struct {
	Request fsm.Request
	Read    *kv.RangeRequest // instead of Request
	At      time.Time        // when it was started
	// Done gets the outcome; the zero value if the caller of Wait gets it.
	Done   kv.Completion
	Result fsm.Result
	Marks  Milestones

	begun time.Time     // when its group began, which is about when the request was added
	size  int           // of its request in the group
	grows bool          // its request adds to the store
	ready chan struct{} // has room for one; receives when Result is set, if a caller waits
}

func newCall() *Call { return &Call{ready: make(chan struct{}, 1)} }

// Begun returns when the group of c began. The caller of Wait may call it before.
func (c *Call) Begun() time.Time { return c.begun }

// setResult gives c its result. It returns c if no caller waits for that.
func (c *Call) setResult(res fsm.Result, marks Milestones) *Call {
	c.Result, c.Marks = res, marks
	if c.Done.To == nil {
		c.ready <- struct{}{}
		return nil
	}
	return c
}

// Start adds a request whose result TakeResults returns. at is when it arrived. The queue keeps
// what the request refers to until then. TakeUnproposed must follow. Errors: as addCall. It waits
// for no disk: it fails with ErrUnmeasured instead.
func (q *Queue) Start(ctx context.Context, r fsm.Request, cost int64, done kv.Completion,
	at time.Time) error {
	c := q.calls.Get().(*Call)
	c.Request, c.Done, c.At = r, done, at
	err := q.addCall(ctx, c, cost, nil)
	if err != nil {
		q.recycle(c)
	}
	return err
}

// StartWaited is Start for a caller that waits for the result, once, by Wait.
func (q *Queue) StartWaited(ctx context.Context, r fsm.Request, cost int64,
	at time.Time) (*Call, error) {
	c := q.calls.Get().(*Call)
	c.Request, c.At = r, at
	err := q.addCall(ctx, c, cost, nil)
	if err == ErrUnmeasured {
		var free []int64
		if free, err = q.o.Space.Measure(ctx); err == nil {
			err = q.addCall(ctx, c, cost, free)
		}
	}
	if err != nil {
		q.recycle(c)
		return nil, err
	}
	return c, nil
}

// Wait waits for the result. It returns false if ctx ended before: the request may still take
// effect, and the result must not be read. Otherwise the caller passes c to Recycle.
func (c *Call) Wait(ctx context.Context) bool {
	select {
	case <-c.ready:
		return true
	case <-ctx.Done():
	}
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// TakeUnproposed reports whether a request was started that no turn of raft may know of, to
// one caller: that wakes it.
func (q *Queue) TakeUnproposed() bool { return q.unproposed.Load() && q.unproposed.Swap(false) }

// StartRead returns a read, which is not proposed and has no result before Deliver. at is when it
// arrived.
func (q *Queue) StartRead(req *kv.RangeRequest, done kv.Completion, at time.Time) *Call {
	c := q.calls.Get().(*Call)
	c.Read, c.Done, c.At = req, done, at
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
	*c = Call{ready: c.ready}
	q.calls.Put(c)
}
