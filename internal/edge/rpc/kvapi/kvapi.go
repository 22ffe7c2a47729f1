// Package kvapi implements the KV service.
//
// Requests are validated completely before the member is called: keys are not empty, sort options
// are valid, and a transaction has no empty operation, puts no key twice or puts and deletes it,
// and has not too many operations on any level.
package kvapi

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/timesapi"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// Store is the part of the member that serves requests and waits. A call returns when its outcome
// is known or its context ends; errors are kv's. Calls may be concurrent, in any order.
type Store interface {
	Range(context.Context, *kv.RangeRequest) (*kv.RangeResult, error)
	gate.WriteStore
	Compact(context.Context, *kv.CompactRequest) (*kv.CompactResult, error)

	// GetNow and StartGet do not wait. They return false, without any effect, for requests that
	// might have to wait or would be rejected.

	// GetNow reads one key into res, which must not be kept. The request arrived at start.
	GetNow(ctx context.Context, r *kv.RangeRequest, res *kv.GetResult, start time.Time) (ok bool)
	// StartGet starts a get. Its outcome must not be kept, and may be that the get is declined.
	StartGet(r *kv.RangeRequest, done kv.Completion) (started bool)
}

// Member names the member in the headers of answers.
type Member interface{ Header() kv.Header }

// Options are what New needs.
type Options struct {
	Store      Store
	Answers    kv.Receiver // answers the calls that were started
	Times      timesapi.Source
	Member     Member
	Deliveries *delivery.Deliveries
	// MaxRequestBytes is the largest request that may be proposed, MaxTxnOps the largest number of
	// operations on one level of a transaction.
	MaxRequestBytes, MaxTxnOps int
}

// API implements the service.
type API struct{ Options }

// New returns the service.
func New(o Options) *API { return &API{o} }

// Service lists the methods. A learner answers serializable ranges.
func (a *API) Service() gate.Service {
	w := &gate.Writer{Store: a.Store, Answers: a.Answers, Deliveries: a.Deliveries}
	get := gate.Unary("Range", a.readRange)
	get.ForLearnerIf = func(r any) bool { return r.(*wire.RangeRequest).Serializable }
	get.Begin, get.Finish, get.MayDecline = a.beginGet, a.finishGet, true
	get.NewRequest = func() any { return wire.NewRangeRequest() }
	get.Free = func(r any) { r.(*wire.RangeRequest).Free() }
	txn := gate.Write(w, "Txn", a.txnWrite, a.txnAnswer)
	txn.NewRequest = func() any {
		r := new(wire.TxnRequest)
		r.LimitOps(a.MaxTxnOps)
		return r
	}
	return gate.Service{Name: etcdserverpb.KV_ServiceDesc.ServiceName, Methods: []gate.Endpoint{
		get, txn, gate.Write(w, "Put", a.putWrite, a.putAnswer),
		gate.Write(w, "DeleteRange", a.deleteWrite, a.deleteAnswer),
		gate.Unary("Compact", a.compact), gate.ServerStreaming("RangeStream", a.streamRange),
	}}
}

// headerAt returns the header of an answer that was made at a revision.
func (a *API) headerAt(revision int64) kv.Header { return a.Member.Header().At(revision) }

func (a *API) readRange(ctx context.Context, r *wire.RangeRequest) (wire.Encoder, error) {
	if err := validate.Range(&r.RangeRequest); err != nil {
		return nil, err
	}
	req, err := timesapi.Request(ctx, a.Times, &r.RangeRequest)
	if err != nil {
		return nil, err
	}
	res, err := a.Store.Range(a.Deliveries.WithHolders(ctx), req)
	if err != nil {
		return nil, apierror.Status(err)
	}
	if res.KVs.Long != nil {
		a.Deliveries.TrackLists(ctx, res)
	}
	return &wire.RangeResponse{Header: a.headerAt(res.Revision), Result: res}, nil
}

// beginGet answers or starts a range of one key.
func (a *API) beginGet(ctx context.Context, request any, p transport.Pending) (any,
	transport.Begun) {
	r := request.(*wire.RangeRequest)
	if validate.Range(&r.RangeRequest) != nil || timesapi.Given(transport.Metadata(ctx)) {
		return nil, transport.Declined
	}
	m := r.MakeAnswer()
	if !a.Store.GetNow(ctx, &r.RangeRequest, &m.Memory, p.Arrived()) {
		r.DropAnswer()
		return nil, gate.StartedIf(a.Store.StartGet(&r.RangeRequest,
			kv.Completion{To: a.Answers, Tag: p}))
	}
	m.Header, m.Result = a.headerAt(m.Memory.Revision), &m.Memory.RangeResult
	return &m.RangeResponse, transport.Answered
}

// finishGet makes the answer to a get that was started.
func (a *API) finishGet(_ context.Context, o *kv.Outcome) (any, error) {
	return &wire.RangeResponse{Header: a.headerAt(o.Range.Revision), Result: o.Range}, nil
}

// putWrite returns the write of a put, or why it is invalid.
func (a *API) putWrite(r *wire.PutRequest) (kv.Write, error) {
	if err := validate.Put(&r.PutRequest); err != nil {
		return kv.Write{}, err
	}
	return kv.Write{Put: &r.PutRequest}, validate.Size(r.Len, a.MaxRequestBytes)
}

func (a *API) putAnswer(ctx context.Context, o *kv.Outcome) (wire.Encoder, error) {
	return a.Deliveries.CountAnswer(ctx,
		&wire.PutResponse{Header: a.headerAt(o.Put.Revision), Result: o.Put}, len(o.Put.PrevKV))
}

// deleteWrite returns the write of a deletion, or why it is invalid.
func (a *API) deleteWrite(r *wire.DeleteRangeRequest) (kv.Write, error) {
	if err := validate.Delete(&r.DeleteRangeRequest); err != nil {
		return kv.Write{}, err
	}
	return kv.Write{DeleteRange: &r.DeleteRangeRequest}, validate.Size(r.Len, a.MaxRequestBytes)
}

func (a *API) deleteAnswer(ctx context.Context, o *kv.Outcome) (wire.Encoder, error) {
	res := o.DeleteRange
	return a.Deliveries.CountAnswer(ctx,
		&wire.DeleteRangeResponse{Header: a.headerAt(res.Revision), Result: res},
		len(res.PrevKVs.Buf))
}

// txnWrite returns the write of a transaction, or why it is invalid.
func (a *API) txnWrite(r *wire.TxnRequest) (w kv.Write, err error) {
	if err := validate.Txn(&r.TxnRequest, a.MaxTxnOps); err != nil {
		return w, err
	}
	// A transaction that only reads is not proposed and may be as large as a message.
	if !validate.ReadOnly(&r.TxnRequest) {
		err = validate.Size(r.Len, a.MaxRequestBytes)
	}
	return kv.Write{Txn: &r.TxnRequest}, err
}

func (a *API) txnAnswer(ctx context.Context, o *kv.Outcome) (wire.Encoder, error) {
	ranges, bytes := contents(o.Txn, nil)
	m := &wire.TxnResponse{Header: a.headerAt(o.Txn.Revision), Result: o.Txn}
	if a.Deliveries.TrackLists(ctx, ranges...) {
		return m, nil
	}
	return a.Deliveries.CountAnswer(ctx, m, bytes)
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

func (a *API) compact(ctx context.Context, r *wire.CompactionRequest) (wire.Encoder, error) {
	res, err := a.Store.Compact(ctx, &r.CompactRequest)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &wire.CompactionResponse{Header: a.headerAt(res.Revision)}, nil
}
