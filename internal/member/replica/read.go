package replica

import (
	"context"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/access"
	"vigil/internal/member/replica/handle"
	"vigil/internal/member/replica/timing"
	"vigil/internal/state/auth"
)

// Range reads keys. Errors: kv.ErrTimeout, kv.ErrTimeoutWaitApplied, kv.ErrStopped, and from
// mvcc.Store.Range and ctx; kv.ErrCorrupt also while the member is not trusted, see Untrusted.
func (r *Replica) Range(ctx context.Context, req *kv.RangeRequest) (*kv.RangeResult, error) {
	err := r.trust.Check()
	if err != nil {
		return nil, err
	}
	read := timing.Read{Start: time.Now()}
	var res *kv.RangeResult
	read.Ready, err = r.AwaitReadable(ctx, req.Serializable)
	read.Took = read.Ready
	if err == nil {
		res, err = access.Read(ctx, r.Access,
			func(s *auth.State, id auth.Identity) error {
				return s.CheckRead(id,
					req.Key, req.End)
			},
			func() (*kv.RangeResult, error) {
				return handle.Read(ctx, r.current,
					func(h *handle.Handle) (*kv.RangeResult,
						error) {
						return h.Store.Range(ctx, req)
					})
			})
		read.Took = time.Since(read.Start)
		r.timings.CountScan(read.Took-read.Ready, err)
	}
	r.timings.CountRange(ctx, req, res, read, err)
	return res, err
}

// HashKV returns the checksum over this member's history up to a revision, 0 for the newest; see
// mvcc.Store.HashKV. It asks no other member, and runs concurrently with reads and writes of
// clients. Errors: from mvcc.Store.HashKV, kv.ErrStopped.
func (r *Replica) HashKV(ctx context.Context, revision int64) (kv.HashResult, error) {
	if _, err := r.AwaitReadable(ctx, true); err != nil {
		return kv.HashResult{}, err
	}
	return handle.Read(ctx, r.current,
		func(h *handle.Handle) (kv.HashResult, error) { return h.Store.HashKV(ctx, revision) })
}

// Hash returns the checksum over all that this member's key space holds now. Errors: as HashKV.
func (r *Replica) Hash(ctx context.Context) (kv.HashResult, error) {
	if _, err := r.AwaitReadable(ctx, true); err != nil {
		return kv.HashResult{}, err
	}
	return handle.Read(ctx, r.current,
		func(h *handle.Handle) (kv.HashResult, error) { return h.Store.Hash(ctx) })
}

// AnswerHash answers a member that compares (calls.Hashes). Errors: kv.ErrStopped, and from ctx and
// the disk.
func (r *Replica) AnswerHash(ctx context.Context, payload []byte) ([]byte, error) {
	ctx, done, err := r.beginErrand(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return r.audit.ServeCall(ctx, payload)
}
