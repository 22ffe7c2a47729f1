package client

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"vigil/client/internal/request"
)

// LeaseID identifies a lease. 0 means none.
type LeaseID int64

var (
	grantMethod  = write("Lease", "LeaseGrant", "grant lease")
	revokeMethod = write("Lease", "LeaseRevoke", "revoke lease")
	ttlMethod    = read("Lease", "LeaseTimeToLive", "time to live of lease")
	leasesMethod = read("Lease", "LeaseLeases", "list leases")
	keepMethod   = stream("Lease", "LeaseKeepAlive", "keep lease alive")
)

// GrantResponse is the answer of [Client.Grant].
type GrantResponse struct {
	Header Header
	ID     LeaseID
	// TTL is how long the lease lives without a keep-alive. It may be more than was requested.
	TTL time.Duration
}

// GrantOption is an option of [Client.Grant].
type GrantOption interface{ applyGrant(*leaseGrant) }

type leaseGrant struct{ id LeaseID }

type grantOption func(*leaseGrant)

func (o grantOption) applyGrant(g *leaseGrant) { o(g) }

// WithLeaseID requests a lease with this id. [Client.Grant] fails with [ErrLeaseExists] if there is
// one.
func WithLeaseID(id LeaseID) GrantOption {
	return grantOption(func(g *leaseGrant) { g.id = id })
}

// Grant creates a lease that lives for ttl, rounded up to seconds, or longer with keep-alives,
// which package lease sends. After an error that matches [ErrUncertain] the lease may exist; it
// expires.
func (c *Client) Grant(ctx context.Context, ttl time.Duration,
	opts ...GrantOption) (*GrantResponse, error) {
	var with leaseGrant
	for _, o := range opts {
		o.applyGrant(&with)
	}
	resp, err := ask[etcdserverpb.LeaseGrantResponse](ctx, c, &grantMethod, "",
		&etcdserverpb.LeaseGrantRequest{TTL: request.SecondsOf(ttl), ID: int64(with.id)})
	if err != nil {
		return nil, err
	}
	if resp.TTL <= 0 {
		return nil, &Error{Op: grantMethod.op,
			Text: fmt.Sprintf("the member granted a lease of %d seconds", resp.TTL),
			Code: codes.Internal, kind: request.ErrMalformed}
	}
	return &GrantResponse{Header: header(resp.Header), ID: LeaseID(resp.ID),
		TTL: request.Seconds(resp.TTL)}, nil
}

// Revoke ends a lease and deletes its keys. It fails with [ErrLeaseNotFound] if there is none.
func (c *Client) Revoke(ctx context.Context, id LeaseID) (Header, error) {
	return headerOf(ask[etcdserverpb.LeaseRevokeResponse](ctx, c, &revokeMethod, "",
		&etcdserverpb.LeaseRevokeRequest{ID: int64(id)}))
}

// TimeToLiveResponse is the answer of [Client.TimeToLive].
type TimeToLiveResponse struct {
	Header Header
	ID     LeaseID
	// Remaining is how long the lease lives without a keep-alive, negative if there is no such
	// lease. Granted is its full time to live.
	Remaining, Granted time.Duration
	// Keys are the attached keys, if they were requested. The namespace is removed from keys that
	// have it.
	Keys []string
}

// TimeToLive returns the remaining time of a lease, and its keys if keys is set.
func (c *Client) TimeToLive(ctx context.Context, id LeaseID,
	keys bool) (*TimeToLiveResponse, error) {
	resp, err := ask[etcdserverpb.LeaseTimeToLiveResponse](ctx, c, &ttlMethod, "",
		&etcdserverpb.LeaseTimeToLiveRequest{ID: int64(id), Keys: keys})
	if err != nil {
		return nil, err
	}
	out := &TimeToLiveResponse{Header: header(resp.Header), ID: LeaseID(resp.ID),
		Remaining: request.Seconds(resp.TTL), Granted: request.Seconds(resp.GrantedTTL)}
	for _, k := range resp.Keys {
		out.Keys = append(out.Keys, c.ns.stripIfThere(k))
	}
	return out, nil
}

// Leases returns the ids of all leases.
func (c *Client) Leases(ctx context.Context) ([]LeaseID, error) {
	resp, err := ask[etcdserverpb.LeaseLeasesResponse](ctx, c, &leasesMethod, "",
		&etcdserverpb.LeaseLeasesRequest{})
	if err != nil {
		return nil, err
	}
	var ids []LeaseID
	for _, l := range resp.Leases {
		ids = append(ids, LeaseID(l.ID))
	}
	return ids, nil
}

// KeepAliveOnce restarts the time to live of a lease and returns it. It fails with
// [ErrLeaseNotFound] if there is none.
func (c *Client) KeepAliveOnce(ctx context.Context, id LeaseID) (ttl time.Duration, err error) {
	a := c.attempts(&keepMethod, "")
	err = a.makeAttempts(ctx, func(ctx context.Context) (sent bool, err error) {
		sent, ttl, err = a.keepAliveOnce(ctx, id)
		return sent, err
	})
	if err != nil {
		return 0, err
	}
	a.At.Release()
	if ttl <= 0 {
		return 0, &Error{Op: keepMethod.op, Member: a.Member(), Text: ErrLeaseNotFound.Error(),
			Code: codes.NotFound, kind: ErrLeaseNotFound}
	}
	return ttl, nil
}
