package rpc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/kv"
)

var errSessionExpired = status.Error(codes.Unknown, "mutex: session is expired")

func (s *service) lockCalls() dynamicCalls {
	return dynamicCalls{unary: map[protoreflect.Name]func(context.Context, *dynamicpb.Message, *dynamicpb.Message) error{
		"Lock": s.lock, "Unlock": s.unlock,
	}}
}

// lock waits until the caller's key is first in line. A caller that goes away while it waits takes its key
// along; one that holds the lock keeps it until it unlocks or its lease ends.
func (s *service) lock(ctx context.Context, in, out *dynamicpb.Message) error {
	ctx, leave, err := s.waiting(ctx)
	if err != nil {
		return err
	}
	defer leave()
	lease, err := s.lease(ctx, lockpb.Int(in, "lease"))
	if err != nil {
		return uncoded(err)
	}
	l := s.line(lockpb.Bytes(in, "name"))
	key := l.key(lease)
	revision, err := l.lock(ctx, key, lease)
	if err != nil {
		return uncoded(err)
	}
	lockpb.Set(out, "header", headerPB(s.header(revision)))
	lockpb.Set(out, "key", key)
	return nil
}

// lock returns the revision as of which the key holds the lock.
func (l line) lock(ctx context.Context, key []byte, lease int64) (revision int64, err error) {
	first := kv.Op{Range: l.first()}
	first.Range.KeysOnly = true
	res, err := l.svc.txn(ctx, &kv.TxnRequest{
		Compare: []kv.Compare{{Key: key, Target: kv.CompareCreate, Result: kv.Equal}},
		Success: []kv.Op{{Put: &kv.PutRequest{Key: key, Lease: lease}}, first},
		Failure: []kv.Op{{Range: &kv.RangeRequest{Key: key, KeysOnly: true, NoCount: true}}, first},
	})
	if err != nil {
		return 0, err
	}
	created := res.Revision
	if !res.Succeeded {
		own, err := l.svc.firstKV(res.Responses[0].Range)
		if err != nil {
			return 0, err
		}
		created = own.CreateRevision
	}
	owner, err := l.svc.firstKV(res.Responses[1].Range)
	if err != nil {
		return 0, err
	}
	if owner == nil || owner.CreateRevision == created {
		return res.Revision, nil
	}
	if err := l.awaitTurn(ctx, created-1); err != nil {
		l.leave(ctx, &candidate{key: key, rev: created})
		return 0, err
	}
	// The lease may have ended meanwhile.
	got, err := l.svc.get(ctx, &kv.RangeRequest{Key: key, KeysOnly: true, NoCount: true})
	if err != nil {
		l.leave(ctx, &candidate{key: key, rev: created})
		return 0, err
	}
	record, err := l.svc.firstKV(got) // which gives its memory back
	if err != nil {
		return 0, err
	}
	if record == nil {
		return 0, errSessionExpired
	}
	return got.Revision, nil
}

// unlock deletes the key that lock has returned, or any other.
func (s *service) unlock(ctx context.Context, in, out *dynamicpb.Message) error {
	res, err := s.remove(ctx, lockpb.Bytes(in, "key"))
	if err != nil {
		return uncoded(err)
	}
	lockpb.Set(out, "header", headerPB(s.header(res.Revision)))
	return nil
}
