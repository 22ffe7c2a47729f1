package proposal

import (
	"context"
	"sync"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// results are started requests with their results, until somebody takes them.
type results struct {
	mu struct {
		sync.Mutex
		list []*Started
	}
	ready chan struct{} // receives when the list stops being empty
}

// mostKept is the largest list of results whose memory is kept.
const mostKept = 4096

// Start is Add for a request whose result Results returns, with the tag. at is when it arrived. The queue keeps what the
// request refers to until then. TakeUnproposed must follow. It waits for no disk: it fails with ErrUnmeasured instead.
func (q *Queue) Start(ctx context.Context, r fsm.Request, cost int64, tag any, at time.Time) error {
	w := q.waiters.Get().(*Waiter)
	w.own = Started{Request: r, Tag: tag, At: at, w: w}
	w.started = &w.own
	first, err := q.add(ctx, &w.own.Request, w, cost, nil)
	if err != nil {
		q.recycle(w)
	} else if first {
		q.unproposed.Store(true)
	}
	return err
}

// TakeUnproposed reports whether a request was started that the raft goroutine may not know of, to one caller: that wakes it.
func (q *Queue) TakeUnproposed() bool { return q.unproposed.Load() && q.unproposed.Swap(false) }

// StartRead returns a read, which is no proposal and has no result before Deliver. at is when it arrived.
func (q *Queue) StartRead(req *kv.RangeRequest, tag any, at time.Time) *Started {
	w := q.waiters.Get().(*Waiter)
	w.own = Started{Read: req, Tag: tag, At: at, w: w}
	return &w.own
}

// Deliver passes results to Results, and returns the list without them. Those of a commit come together, so that their receiver is woken
// once.
func (q *Queue) Deliver(list []*Started) []*Started {
	if len(list) == 0 {
		return list
	}
	q.results.mu.Lock()
	q.results.mu.list = append(q.results.mu.list, list...)
	q.results.mu.Unlock()
	select {
	case q.results.ready <- struct{}{}:
	default:
	}
	if clear(list); cap(list) > mostKept {
		return nil
	}
	return list[:0]
}

// Results waits for results of started requests and appends all that there are to dst, unless stop is closed before. They
// must be given to Recycle. It may be called concurrently.
func (q *Queue) Results(dst []*Started, stop <-chan struct{}) []*Started {
	for n := len(dst); ; {
		q.results.mu.Lock()
		dst = append(dst, q.results.mu.list...)
		clear(q.results.mu.list)
		if q.results.mu.list = q.results.mu.list[:0]; cap(q.results.mu.list) > mostKept {
			q.results.mu.list = nil // it was as long as all requests under way
		}
		q.results.mu.Unlock()
		if len(dst) > n {
			return dst
		}
		select {
		case <-q.results.ready:
		case <-stop:
			return dst
		}
	}
}

// Recycle ends the use of what Results has returned.
func (q *Queue) Recycle(list []*Started) {
	for i, s := range list {
		list[i] = nil
		q.recycle(s.w)
	}
}

func (q *Queue) recycle(w *Waiter) {
	w.own, w.started = Started{}, nil
	w.state.Store(waiting)
	q.waiters.Put(w)
}
