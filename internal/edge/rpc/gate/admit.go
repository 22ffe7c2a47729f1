package gate

import (
	"context"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// admit accepts or rejects a call by its metadata and the state of the member, and counts it.
// needsLeader reports whether the client requires a member that knows the leader.
func (g *Gate) admit(ctx context.Context, calls *versionCounters,
	forLearner bool) (needsLeader bool, err error) {
	if !forLearner && g.o.Member.IsLearner() {
		return false, rpctypes.ErrGRPCNotSupportedForLearner
	}
	version := unknownVersion
	if v := metadata.ValueFromIncomingContext(ctx,
		rpctypes.MetadataClientAPIVersionKey); len(v) > 0 {
		version = v[0]
	}
	if !utf8.ValidString(version) {
		return false, rpctypes.ErrGRPCInvalidClientAPIVersion
	}
	calls.of(version).Inc()
	if !requiresLeader(ctx) {
		return false, nil
	}
	if g.o.Member.Leader() == 0 {
		return true, rpctypes.ErrGRPCNoLeader
	}
	return true, nil
}

// requiresLeader reports whether the client requires a member that knows the leader.
func requiresLeader(ctx context.Context) bool {
	return asksForLeader(metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey))
}

// asksForLeader reports whether the values of rpctypes.MetadataRequireLeaderKey require a leader.
func asksForLeader(values []string) bool {
	return len(values) > 0 && values[0] == rpctypes.MetadataHasLeader
}
