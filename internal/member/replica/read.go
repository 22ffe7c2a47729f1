package replica

import (
	"context"
	"errors"
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
	err := r.trust.Check()
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
	w := r.waits.Join(index, &r.applied)
	if w == nil {
		return nil
	}
	select {
	case <-w.Done():
		return w.Err()
	case <-ctx.Done():
		return r.ctxError(ctx.Err(), w.Since())
	}
}

// HashKV returns the checksum over this member's history up to a revision, 0 for the newest; see
// mvcc.Store.HashKV. It asks no other member, and runs concurrently with reads and writes of clients.
// Errors: those of mvcc.Store.HashKV, kv.ErrStopped.
func (r *Replica) HashKV(ctx context.Context, revision int64) (kv.HashResult, error) {
	if _, err := r.readable(ctx, true); err != nil {
		return kv.HashResult{}, err
	}
	return onStore(ctx, r, func(h *handle) (kv.HashResult, error) { return h.store.HashKV(ctx, revision) })
}

// Hash returns the checksum over all that this member's key space holds now. Errors: as HashKV.
func (r *Replica) Hash(ctx context.Context) (kv.HashResult, error) {
	if _, err := r.readable(ctx, true); err != nil {
		return kv.HashResult{}, err
	}
	return onStore(ctx, r, func(h *handle) (kv.HashResult, error) { return h.store.Hash(ctx) })
}

// AnswerHash answers a member that compares (calls.Hashes). Errors: kv.ErrStopped, those of ctx, and of the disk.
func (r *Replica) AnswerHash(ctx context.Context, payload []byte) ([]byte, error) {
	ctx, done, err := r.errand(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return r.audit.ServeCall(ctx, payload)
}
