package replica

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/access"
	"vigil/internal/member/replica/timing"
	"vigil/internal/state/auth"
)

// Range reads keys. Errors: those of mvcc.Store.Range; kv.ErrTimeout, kv.ErrTimeoutWaitApplied,
// kv.ErrStopped and that of ctx; kv.ErrCorrupt also while the member is not trusted, see Untrusted.
func (r *Replica) Range(ctx context.Context, req *kv.RangeRequest) (*kv.RangeResult, error) {
	err := r.trust.check()
	if err != nil {
		return nil, err
	}
	read := timing.Read{Start: time.Now()}
	var res *kv.RangeResult
	read.Ready, err = r.readable(ctx, req.Serializable)
	read.Took = read.Ready
	if err == nil {
		res, err = access.Read(ctx, r.Access, func(s *auth.State, id auth.Identity) error { return s.CheckRead(id, req.Key, req.End) },
			func() (*kv.RangeResult, error) {
				return onStore(ctx, r, func(h *handle) (*kv.RangeResult, error) { return h.store.Range(ctx, req) })
			})
		read.Took = time.Since(read.Start)
		r.timings.CountScan(read.Took-read.Ready, err)
	}
	r.timings.CountRange(ctx, req, res, read, err)
	return res, err
}

// readable waits until the store may be read. waited is 0 unless it had to.
func (r *Replica) readable(ctx context.Context, serializable bool) (waited time.Duration, err error) {
	select {
	case <-r.stopping:
		return 0, kv.ErrStopped
	default:
	}
	if serializable {
		return 0, ctx.Err()
	}
	return r.linearize(ctx)
}

// Linearize waits until this member's state is at least as new as any member's was when it was
// called. Errors: as Range.
func (r *Replica) Linearize(ctx context.Context) error {
	_, err := r.linearize(ctx)
	return err
}

// linearize is Linearize; waited is 0 unless it had to wait.
func (r *Replica) linearize(ctx context.Context) (waited time.Duration, err error) {
	index, ok := r.node.TryReadIndex()
	if ok && r.applied.Load() >= index {
		return 0, ctx.Err()
	}
	begun := time.Now()
	if !ok {
		if index, err = r.readIndex(ctx, begun); err != nil {
			return time.Since(begun), err
		}
	}
	if err = ctx.Err(); r.applied.Load() < index {
		err = r.WaitApplied(ctx, index)
	}
	return time.Since(begun), err
}

// readIndex asks the cluster for its commit index.
func (r *Replica) readIndex(ctx context.Context, begun time.Time) (uint64, error) {
	limited, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	index, err := r.node.ReadIndex(limited)
	r.timings.CountReadIndex(time.Since(begun), err)
	switch {
	case err == nil:
		return index, nil
	case errors.Is(err, raftnode.ErrStopped):
		return 0, kv.ErrStopped
	default:
		return 0, r.ctxError(err, begun)
	}
}

// WaitApplied waits until the result of an index can be read.
func (r *Replica) WaitApplied(ctx context.Context, index uint64) error {
	w := r.readers.join(index, &r.applied)
	if w == nil {
		return nil
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return r.ctxError(ctx.Err(), w.since)
	}
}

// readers are reads that wait for the apply goroutine. Reads that wait for the same position, and started between the same
// two calls of expire, share one entry.
type readers struct {
	mu struct {
		sync.Mutex
		waiting []*reader // by index, and by age for the same one
		round   uint64    // counts the calls of expire
		err     error
	}
}

type reader struct {
	index uint64
	since time.Time // when the first of the reads that share it started
	round uint64
	done  chan struct{}
	err   error // set before done is closed
}

// loader is an atomic position.
type loader interface{ Load() uint64 }

// join returns what to wait on for index, nil if it is applied already.
func (r *readers) join(index uint64, applied loader) *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if applied.Load() >= index {
		return nil
	}
	// The last entry of the index is the youngest.
	i, _ := slices.BinarySearchFunc(r.mu.waiting, index+1, func(w *reader, index uint64) int { return cmp.Compare(w.index, index) })
	if i > 0 && r.mu.waiting[i-1].index == index && r.mu.waiting[i-1].round == r.mu.round {
		return r.mu.waiting[i-1]
	}
	w := &reader{index: index, since: time.Now(), round: r.mu.round, done: make(chan struct{})}
	if r.mu.err != nil {
		w.err = r.mu.err
		close(w.done)
		return w
	}
	r.mu.waiting = slices.Insert(r.mu.waiting, i, w)
	return w
}

// advance wakes readers that wait for index or less. The applied position was stored before.
func (r *readers) advance(index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(r.mu.waiting) && r.mu.waiting[n].index <= index {
		close(r.mu.waiting[n].done)
		n++
	}
	r.mu.waiting = slices.Delete(r.mu.waiting, 0, n)
}

// expire fails readers that have waited since before a time. It is called regularly.
func (r *readers) expire(before time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.round++
	r.mu.waiting = slices.DeleteFunc(r.mu.waiting, func(w *reader) bool {
		if !w.since.Before(before) {
			return false
		}
		w.err = err
		close(w.done)
		return true
	})
}

// close fails all waiting readers, and all later ones.
func (r *readers) close(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.err = err
	for _, w := range r.mu.waiting {
		w.err = err
		close(w.done)
	}
	r.mu.waiting = nil
}
