package lockapi

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// KV is the part of the member that the services read and write. Errors are kv's.
type KV interface {
	Range(context.Context, *kv.RangeRequest) (*kv.RangeResult, error)
	Do(context.Context, kv.Write) kv.Outcome
}

// Member names the member in the headers of answers.
type Member interface{ Header() kv.Header }

// Watches watches for calls.
type Watches interface {
	// Follow watches until next returns false or an error, which it returns. The error is
	// kv.ErrCompacted if the start revision is compacted, and otherwise a status.
	Follow(ctx context.Context, r watch.CreateRequest,
		next func(*watch.Response) (more bool, err error)) error
}

// Waits has the calls that may wait long.
type Waits interface {
	// JoinStreams returns the context of a call that ends with the server. leave ends the wait.
	JoinStreams(ctx context.Context) (_ context.Context, leave func(), err error)
}

// store serves requests as the KV and Lease services do. Errors are statuses.
type store struct{ o Options }

func (s *store) readRange(ctx context.Context, r *kv.RangeRequest) (*kv.RangeResult, error) {
	if err := validate.Range(r); err != nil {
		return nil, err
	}
	res, err := s.o.KV.Range(ctx, r)
	return res, apierror.Status(err)
}

func (s *store) commitTxn(ctx context.Context, r *kv.TxnRequest) (*kv.TxnResult, error) {
	if err := validate.Txn(r, s.o.MaxTxnOps); err != nil {
		return nil, err
	}
	o := s.o.KV.Do(ctx, kv.Write{Txn: r})
	return o.Txn, apierror.Status(o.Err)
}

func (s *store) deleteKey(ctx context.Context, key []byte) (*kv.DeleteRangeResult, error) {
	r := &kv.DeleteRangeRequest{Key: key}
	if err := validate.Delete(r); err != nil {
		return nil, err
	}
	o := s.o.KV.Do(ctx, kv.Write{DeleteRange: r})
	return o.DeleteRange, apierror.Status(o.Err)
}

// grantLease grants a lease with a TTL in seconds.
func (s *store) grantLease(ctx context.Context, ttl int64) (id int64, err error) {
	o := s.o.KV.Do(ctx, kv.Write{Grant: &kv.LeaseGrantRequest{TTL: ttl}})
	if o.Err != nil {
		return 0, apierror.Status(o.Err)
	}
	return o.Lease.ID, nil
}

// headerAt returns the header of a response that was made at a revision.
func (s *store) headerAt(revision int64) *etcdserverpb.ResponseHeader {
	return gate.Header(s.o.Member.Header().At(revision))
}
