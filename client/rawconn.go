package client

import (
	"context"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"vigil/client/internal/pool"
	"vigil/client/internal/rawconn"
)

// Conn returns the client as a gRPC connection, for calls that this package has no method for. They
// use the same members, carry the token, and are retried by the same rules: read-only calls
// whenever another attempt may help, others if they were certainly not applied. A stream is opened
// again only before its first answer. An error is gRPC's error of the last attempt. The calls do
// not require a leader.
func (c *Client) Conn() grpc.ClientConnInterface {
	return rawconn.Conn(func(name string, req any) rawconn.Attempts {
		return &rawAttempts{c.attempts(methodOf(name, req), "")}
	})
}

// readOnlyMethods are the services and methods that change nothing, so calling them twice is safe.
var readOnlyMethods = []string{
	rangeMethod.name, rangeStreamMethod.name, watchMethod.name, keepMethod.name, ttlMethod.name,
	leasesMethod.name,
	memberListMethod.name, statusMethod.name, hashMethod.name, hashKVMethod.name,
	snapshotMethod.name,
	authStatusMethod.name, authenticateMethod.name, userGetMethod.name, userListMethod.name,
	roleGetMethod.name, roleListMethod.name,
	"/v3electionpb.Election/Leader", "/v3electionpb.Election/Observe", "/grpc.health.v1.Health/",
	"/grpc.reflection.", "/vigil.Times/",
}

// methodOf describes a call by its name. req is its request, nil if there may be several.
func methodOf(name string, req any) *method {
	m := &method{name: name, op: name, write: true}
	if txn, ok := req.(*etcdserverpb.TxnRequest); ok {
		m.write = !readOnly(txn)
	} else {
		m.write = !slices.ContainsFunc(readOnlyMethods,
			func(h string) bool { return strings.HasPrefix(name, h) })
	}
	return m
}

func readOnly(txn *etcdserverpb.TxnRequest) bool {
	writes := func(op *etcdserverpb.RequestOp) bool {
		return op.GetRequestRange() == nil &&
			(op.GetRequestTxn() == nil || !readOnly(op.GetRequestTxn()))
	}
	return !slices.ContainsFunc(txn.GetSuccess(), writes) &&
		!slices.ContainsFunc(txn.GetFailure(), writes)
}

// rawAttempts are the attempts of a call of Conn. Their errors are gRPC's.
type rawAttempts struct{ attempts }

// Run implements rawconn.Attempts.
func (a *rawAttempts) Run(ctx context.Context,
	try func(context.Context, *pool.Member) (bool, error)) error {
	if err := a.makeAttempts(ctx,
		func(ctx context.Context) (bool, error) { return try(ctx, a.At) }); err != nil {
		return a.last
	}
	return nil
}

// AwaitRetry implements rawconn.Attempts.
func (a *rawAttempts) AwaitRetry(ctx context.Context, err error, sent bool) bool {
	return a.handleFailure(ctx, err, sent) == nil
}

// RecordEnd implements rawconn.Attempts.
func (a *rawAttempts) RecordEnd(ctx context.Context, err error) {
	e := a.explain(ctx, err)
	v := judge(e, a.m, true)
	a.MarkMember(v, e)
	if v.Renew {
		a.RenewToken(v) // the next stream gets another token
	}
}
