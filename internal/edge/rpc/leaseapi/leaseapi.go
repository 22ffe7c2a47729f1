// Package leaseapi implements the Lease service. For a missing lease, LeaseKeepAlive answers with a
// TTL of 0 and LeaseTimeToLive with -1.
package leaseapi

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// Leases is the part of the member that knows the leases. Errors are kv's.
type Leases interface {
	// RevokeLease ends a lease with its keys.
	RevokeLease(ctx context.Context, id int64) (kv.LeaseResult, error)
	// KeepAlive returns the TTL that a lease has from now on.
	KeepAlive(ctx context.Context, id int64) (ttl int64, err error)
	// RenewNow is KeepAlive without waiting. It returns false, without any effect, if the renewal
	// might have to wait or would be rejected.
	RenewNow(id int64) (ttl int64, ok bool)
	// TimeToLive returns the state of a lease, with its keys if requested.
	TimeToLive(ctx context.Context, id int64, keys bool) (kv.LeaseStatus, error)
	// LeaseIDs lists the leases that this member knows. It returns at once.
	LeaseIDs(context.Context) ([]int64, error)
}

// Member names the member in the headers of answers.
type Member interface{ Header() kv.Header }

// Options are what New needs.
type Options struct {
	Leases     Leases
	Writer     *gate.Writer
	Member     Member
	Deliveries *delivery.Deliveries
}

// API implements the service.
type API struct{ Options }

// New returns the service.
func New(o Options) *API { return &API{o} }

// Service lists the methods.
func (a *API) Service() gate.Service {
	return gate.Service{Name: etcdserverpb.Lease_ServiceDesc.ServiceName, Methods: []gate.Endpoint{
		gate.Write(a.Writer, "LeaseGrant", grantWrite, a.grantAnswer),
		gate.Unary("LeaseRevoke", a.revokeLease),
		gate.BidiStreaming[wire.LeaseKeepAliveRequest]("LeaseKeepAlive",
			func() gate.SessionHandler { return &keepAlives{api: a} }),
		gate.Unary("LeaseTimeToLive", a.timeToLive), gate.Unary("LeaseLeases", a.listLeases),
	}}
}

// grantWrite returns the write that grants a lease.
func grantWrite(r *wire.LeaseGrantRequest) (kv.Write, error) {
	return kv.Write{Grant: &r.LeaseGrantRequest}, nil
}

func (a *API) grantAnswer(_ context.Context, o *kv.Outcome) (wire.Encoder, error) {
	return &wire.LeaseResponse{Header: a.Member.Header().At(o.Lease.Revision), ID: o.Lease.ID,
		TTL: o.Lease.TTL}, nil
}

func (a *API) revokeLease(ctx context.Context,
	r *etcdserverpb.LeaseRevokeRequest) (*etcdserverpb.LeaseRevokeResponse, error) {
	res, err := a.Leases.RevokeLease(ctx, r.ID)
	if err != nil {
		return nil, apierror.Status(err)
	}
	h := gate.Header(a.Member.Header().At(res.Revision))
	return &etcdserverpb.LeaseRevokeResponse{Header: h}, nil
}

// overhead is about how many bytes of memory a key, or a lease, needs in an answer beyond its text.
const overhead = 64

func (a *API) timeToLive(ctx context.Context, r *etcdserverpb.LeaseTimeToLiveRequest) (any, error) {
	st, err := a.Leases.TimeToLive(ctx, r.ID, r.Keys)
	if errors.Is(err, kv.ErrLeaseNotFound) {
		st, err = kv.LeaseStatus{TTL: -1}, nil
	}
	if err != nil {
		return nil, apierror.Status(err)
	}
	n := int64(len(st.Keys)) * overhead
	for _, k := range st.Keys {
		n += 2 * int64(len(k)) // as a message, and encoded
	}
	wrap, err := a.Deliveries.Reserve(ctx, n)
	if err != nil {
		return nil, err
	}
	res := &etcdserverpb.LeaseTimeToLiveResponse{Header: gate.Header(a.Member.Header()), ID: r.ID,
		TTL: st.TTL, GrantedTTL: st.Granted}
	for _, k := range st.Keys {
		res.Keys = append(res.Keys, []byte(k))
	}
	return wrap(res), nil
}

func (a *API) listLeases(ctx context.Context, _ *etcdserverpb.LeaseLeasesRequest) (any, error) {
	ids, err := a.Leases.LeaseIDs(ctx)
	if err != nil {
		return nil, apierror.Status(err)
	}
	wrap, err := a.Deliveries.Reserve(ctx, int64(len(ids))*2*overhead)
	if err != nil {
		return nil, err
	}
	res := &etcdserverpb.LeaseLeasesResponse{Header: gate.Header(a.Member.Header())}
	for _, id := range ids {
		res.Leases = append(res.Leases, &etcdserverpb.LeaseStatus{ID: id})
	}
	return wrap(res), nil
}
