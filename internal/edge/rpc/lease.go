package rpc

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// Leases is the part of the member that the lease service uses. Errors are kv's.
type Leases interface {
	// RevokeLease ends a lease with its keys.
	RevokeLease(ctx context.Context, id int64) (kv.LeaseResult, error)
	// KeepAlive returns the TTL that a lease has from now on.
	KeepAlive(ctx context.Context, id int64) (ttl int64, err error)
	// TimeToLive returns the state of a lease, with its keys if requested.
	TimeToLive(ctx context.Context, id int64, keys bool) (kv.LeaseStatus, error)
	// LeaseIDs lists the leases that this member knows. It returns at once.
	LeaseIDs(context.Context) ([]int64, error)
}

// leaseServer is the Lease service. For a missing lease, LeaseKeepAlive answers with a TTL of 0 and LeaseTimeToLive with
// -1.
type leaseServer struct {
	svc *service
}

// grantWrite returns the write that grants a lease.
func (l *leaseServer) grantWrite(r *wire.LeaseGrantRequest) (kv.Write, error) {
	return kv.Write{Grant: &r.LeaseGrantRequest}, nil
}

func (l *leaseServer) grantAnswer(_ context.Context, o *kv.Outcome) (wire.Encoder, error) {
	return &wire.LeaseResponse{Header: l.svc.header(o.Lease.Revision), ID: o.Lease.ID, TTL: o.Lease.TTL}, nil
}

func (l *leaseServer) LeaseRevoke(ctx context.Context, r *etcdserverpb.LeaseRevokeRequest) (*etcdserverpb.LeaseRevokeResponse, error) {
	res, err := l.svc.cfg.Leases.RevokeLease(ctx, r.ID)
	if err != nil {
		return nil, apierror.Status(err)
	}
	return &etcdserverpb.LeaseRevokeResponse{Header: headerPB(l.svc.header(res.Revision))}, nil
}

// leaseOverhead is about how much memory a key, or a lease, takes in an answer beyond its text.
const leaseOverhead = 64

func (l *leaseServer) LeaseTimeToLive(ctx context.Context, r *etcdserverpb.LeaseTimeToLiveRequest) (any, error) {
	st, err := l.svc.cfg.Leases.TimeToLive(ctx, r.ID, r.Keys)
	if errors.Is(err, kv.ErrLeaseNotFound) {
		st, err = kv.LeaseStatus{TTL: -1}, nil
	}
	if err != nil {
		return nil, apierror.Status(err)
	}
	n := int64(len(st.Keys)) * leaseOverhead
	for _, k := range st.Keys {
		n += 2 * int64(len(k)) // as a message, and encoded
	}
	send, err := l.svc.deliveries.Reserve(ctx, n)
	if err != nil {
		return nil, err
	}
	res := &etcdserverpb.LeaseTimeToLiveResponse{Header: headerPB(l.svc.cfg.Member.Header()), ID: r.ID, TTL: st.TTL, GrantedTTL: st.Granted}
	for _, k := range st.Keys {
		res.Keys = append(res.Keys, []byte(k))
	}
	return send(res), nil
}

func (l *leaseServer) LeaseLeases(ctx context.Context, _ *etcdserverpb.LeaseLeasesRequest) (any, error) {
	ids, err := l.svc.cfg.Leases.LeaseIDs(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	send, err := l.svc.deliveries.Reserve(ctx, int64(len(ids))*2*leaseOverhead)
	if err != nil {
		return nil, err
	}
	res := &etcdserverpb.LeaseLeasesResponse{Header: headerPB(l.svc.cfg.Member.Header())}
	for _, id := range ids {
		res.Leases = append(res.Leases, &etcdserverpb.LeaseStatus{ID: id})
	}
	return send(res), nil
}

// leaseSession is a stream of keep-alives. It answers one request after another.
type leaseSession struct{ promptSession }

// begin implements served.
func (l *leaseSession) begin() error { return nil }

// Answer implements transport.PromptSession.
func (l *leaseSession) Answer(message, to []byte) (_ []byte, ok bool) {
	var r wire.LeaseKeepAliveRequest
	if l.svc.cfg.Starter == nil || r.Decode(message) != nil {
		return to, false
	}
	answer := wire.LeaseResponse{ID: r.ID, Header: l.svc.cfg.Member.Header()} // the head first, as in Receive
	if answer.TTL, ok = l.svc.cfg.Starter.Renew(r.ID); !ok {
		return to, false
	}
	return answer.AppendTo(to), true
}

// Receive implements transport.Session.
func (l *leaseSession) Receive(message any) {
	r := message.(*wire.LeaseKeepAliveRequest)
	// The head first: its revision must not be above one at which the lease is gone.
	res := &wire.LeaseResponse{ID: r.ID, Header: l.svc.cfg.Member.Header()}
	switch ttl, err := l.svc.cfg.Leases.KeepAlive(l.ctx, r.ID); {
	case err == nil:
		res.TTL = ttl
	case !errors.Is(err, kv.ErrLeaseNotFound):
		l.End(apierror.Status(err)) // without effect if the stream has ended
		return
	}
	if err := l.SendMsg(res); err != nil {
		l.failed("send")
		l.End(err)
	}
}

// EndReceive implements transport.Session: the stream ends with its requests.
func (l *leaseSession) EndReceive() { l.End(nil) }

// Fill implements transport.Session.
func (l *leaseSession) Fill(int) {}

// Close implements transport.Session.
func (l *leaseSession) Close(reason error) {
	var received *transport.ReceiveError
	if errors.As(reason, &received) {
		l.failed("receive")
	}
}

// failed counts a failure that is not the end of the stream.
func (l *leaseSession) failed(op string) {
	if l.ctx.Err() == nil || op == "receive" {
		l.svc.cfg.Metrics.streamFailures.WithLabelValues(op, "lease-keepalive").Inc()
	}
}
