package replica

import (
	"context"

	"vigil/internal/kv"
)

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
