package rpc

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// lockStore implements locks.Store: what a client of the KV, Lease and Watch services would receive.
type lockStore struct{ svc *service }

// Range implements locks.Store.
func (s lockStore) Range(ctx context.Context, r *kv.RangeRequest) (*kv.RangeResult, error) {
	if err := validate.Range(r); err != nil {
		return nil, err
	}
	res, err := s.svc.cfg.KV.Range(ctx, r)
	return res, apierror.Status(err)
}

// Txn implements locks.Store.
func (s lockStore) Txn(ctx context.Context, r *kv.TxnRequest) (*kv.TxnResult, error) {
	if err := validate.Txn(r, s.svc.cfg.MaxTxnOps); err != nil {
		return nil, err
	}
	o := s.svc.cfg.KV.Do(ctx, kv.Write{Txn: r})
	return o.Txn, apierror.Status(o.Err)
}

// Delete implements locks.Store.
func (s lockStore) Delete(ctx context.Context, key []byte) (*kv.DeleteRangeResult, error) {
	r := &kv.DeleteRangeRequest{Key: key}
	if err := validate.Delete(r); err != nil {
		return nil, err
	}
	o := s.svc.cfg.KV.Do(ctx, kv.Write{DeleteRange: r})
	return o.DeleteRange, apierror.Status(o.Err)
}

// Grant implements locks.Store.
func (s lockStore) Grant(ctx context.Context, ttl int64) (int64, error) {
	o := s.svc.cfg.KV.Do(ctx, kv.Write{Grant: &kv.LeaseGrantRequest{TTL: ttl}})
	if o.Err != nil {
		return 0, apierror.Status(o.Err)
	}
	return o.Lease.ID, nil
}

// Header implements locks.Store.
func (s lockStore) Header(revision int64) *etcdserverpb.ResponseHeader {
	return headerPB(s.svc.header(revision))
}

// Wait implements locks.Store. The call ends with the server, like streams.
func (s lockStore) Wait(ctx context.Context) (_ context.Context, leave func(), err error) {
	return s.svc.streams.Join(ctx, requiresLeader(ctx))
}

// Follow implements locks.Store.
func (s lockStore) Follow(ctx context.Context, r watch.CreateRequest, next func(*watch.Response) (more bool, err error)) error {
	var hub authorizedStream
	hub.open(ctx, s.svc, transport.Remote(ctx))
	defer hub.Close()
	hub.Create(r)
	var batch []watch.Response
	for {
		var err error
		if batch, err = hub.Next(ctx, batch[:0]); errors.Is(err, watch.ErrClosed) {
			return hub.ended()
		} else if err != nil {
			return transport.EndStatus(ctx, apierror.Status(err))
		}
		for i := range batch {
			switch res := &batch[i]; {
			case res.CompactRevision != 0:
				return kv.ErrCompacted
			case res.Canceled:
				return status.Error(codes.Unknown, res.Reason)
			case len(res.Events) == 0:
			default:
				if more, err := next(res); err != nil || !more {
					return err
				}
			}
		}
	}
}
