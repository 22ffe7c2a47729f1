package lockapi

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/kv"
)

var errSessionExpired = status.Error(codes.Unknown, "mutex: session is expired")

// lock waits until the caller's key is at the head of the queue.
func (s *API) lock(ctx context.Context, in, out *dynamicpb.Message) error {
	ctx, leave, err := s.o.Waits.JoinStreams(ctx)
	if err != nil {
		return err
	}
	defer leave()
	lease, err := s.leaseOf(ctx, lockpb.Int(in, "lease"))
	if err != nil {
		return withoutCode(err)
	}
	q := s.queue(lockpb.Bytes(in, "name"))
	key := q.key(lease)
	revision, err := q.acquire(ctx, key, lease)
	if err != nil {
		return withoutCode(err)
	}
	lockpb.Set(out, "header", s.headerAt(revision))
	lockpb.Set(out, "key", key)
	return nil
}

// acquire returns the revision at which the key holds the lock.
func (q queue) acquire(ctx context.Context, key []byte, lease int64) (revision int64, err error) {
	first := kv.Op{Range: q.head()}
	first.Range.KeysOnly = true
	res, err := q.commitTxn(ctx, &kv.TxnRequest{
		Compare: []kv.Compare{{Key: key, Target: kv.CompareCreate, Result: kv.Equal}},
		Success: []kv.Op{{Put: &kv.PutRequest{Key: key, Lease: lease}}, first},
		Failure: []kv.Op{{Range: &kv.RangeRequest{Key: key, KeysOnly: true, NoCount: true}}, first},
	})
	if err != nil {
		return 0, err
	}
	created := res.Revision
	if !res.Succeeded {
		own, err := firstKV(res.Responses[0].Range)
		if err != nil {
			return 0, err
		}
		created = own.CreateRevision
	}
	owner, err := firstKV(res.Responses[1].Range)
	if err != nil {
		return 0, err
	}
	if owner == nil || owner.CreateRevision == created {
		return res.Revision, nil
	}
	if err := q.awaitTurn(ctx, created-1); err != nil {
		q.abandon(ctx, &waiter{key: key, rev: created})
		return 0, err
	}
	// The lease may have ended during the wait.
	got, err := q.readRange(ctx, &kv.RangeRequest{Key: key, KeysOnly: true, NoCount: true})
	if err != nil {
		q.abandon(ctx, &waiter{key: key, rev: created})
		return 0, err
	}
	record, err := firstKV(got) // which gives back the memory
	if err != nil {
		return 0, err
	}
	if record == nil {
		return 0, errSessionExpired
	}
	return got.Revision, nil
}

// unlock deletes the key that lock has returned, or any other key.
func (s *API) unlock(ctx context.Context, in, out *dynamicpb.Message) error {
	res, err := s.deleteKey(ctx, lockpb.Bytes(in, "key"))
	if err != nil {
		return withoutCode(err)
	}
	lockpb.Set(out, "header", s.headerAt(res.Revision))
	return nil
}
