package rpc

import (
	"context"

	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

func (s *service) newDeliveries() *delivery.Deliveries {
	return delivery.New(delivery.Options{Budget: s.cfg.Ranges, User: s.userOf, Cut: s.cfg.Metrics.rangeCut, Logger: s.log})
}

func (s *service) withHolders(ctx context.Context) context.Context {
	return s.deliveries.WithHolders(ctx)
}

func (s *service) trackLists(ctx context.Context, lists ...*kv.RangeResult) bool {
	return s.deliveries.TrackLists(ctx, lists...)
}

func (s *service) countAnswer(ctx context.Context, m wire.Encoder, bytes int) (wire.Encoder, error) {
	return s.deliveries.CountAnswer(ctx, m, bytes)
}

// contents returns the ranges of a transaction's answer and how many bytes its buffers hold.
func contents(r *kv.TxnResult, ranges []*kv.RangeResult) (_ []*kv.RangeResult, bytes int) {
	for i := range r.Responses {
		switch op := &r.Responses[i]; {
		case op.Range != nil:
			ranges = append(ranges, op.Range)
			bytes += len(op.Range.KVs.Buf)
		case op.Put != nil:
			bytes += len(op.Put.PrevKV)
		case op.Delete != nil:
			bytes += len(op.Delete.PrevKVs.Buf)
		case op.Txn != nil:
			var n int
			ranges, n = contents(op.Txn, ranges)
			bytes += n
		}
	}
	return ranges, bytes
}

// userOf returns the user who makes a call, empty if that is not known.
func (s *service) userOf(ctx context.Context) string {
	if !s.enabled() {
		return ""
	}
	return s.cfg.Auth.User(ctx)
}
