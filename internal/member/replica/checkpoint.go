package replica

import (
	"context"
	"sync"

	"vigil/internal/kv"
	"vigil/internal/member/replica/handle"
	"vigil/internal/offline/datadir"
	"vigil/internal/store/history"
)

// errands are calls from outside that use the disk and that Stop must wait for.
type errands struct {
	mu struct {
		sync.Mutex
		stopped bool
	}
	running sync.WaitGroup
}

// beginErrand begins a call from outside that uses the disk. It returns a context that ends, with
// kv.ErrStopped for its cause, when the member stops, and a function to call at the end. Its error
// is kv.ErrStopped.
func (r *Replica) beginErrand(ctx context.Context) (context.Context, func(), error) {
	if !r.errands.add() {
		return nil, nil, kv.ErrStopped
	}
	ctx, cancel := context.WithCancelCause(ctx)
	forget := r.onStop(func() { cancel(kv.ErrStopped) })
	return ctx, func() {
		forget()
		cancel(nil)
		r.errands.running.Done()
	}, nil
}

// onStop calls f when the member stops, unless the function it returns is called before.
func (r *Replica) onStop(f func()) (forget func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-r.stopping:
			f()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// add returns false if no errand may begin any more. Otherwise the caller calls running.Done.
func (e *errands) add() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.stopped {
		return false
	}
	e.running.Add(1)
	return true
}

// close lets no errand begin any more, and waits until none is running.
func (e *errands) close() {
	e.mu.Lock()
	e.mu.stopped = true
	e.mu.Unlock()
	e.running.Wait()
}

// Checkpoint makes dir, which must not exist yet, a checkpoint: a directory laid out like a data
// directory, with the store as it is at some moment of the call, membership and all, and without a
// raft log. It takes links and at most one segment of space, must be on the file system of the
// store, and delays no write. The result has its position and revision. Errors: kv.ErrStopped, and
// from history.Log.Checkpoint; none of them harms the member.
func (r *Replica) Checkpoint(ctx context.Context, dir string) (history.Checkpoint, error) {
	ctx, done, err := r.beginErrand(ctx)
	if err != nil {
		return history.Checkpoint{}, err
	}
	defer done()
	c, err := handle.Read(ctx, r.current, func(h *handle.Handle) (history.Checkpoint, error) {
		return h.Log.Checkpoint(ctx, dir, datadir.HistoryName)
	})
	if err != nil && context.Cause(ctx) == kv.ErrStopped {
		err = kv.ErrStopped
	}
	return c, err
}
