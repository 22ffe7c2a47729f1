package rpc

import (
	"context"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"vigil/internal/edge/rpc/versions"
)

// admit accepts or rejects a call by its metadata and the state of the member. forLearner means that a learner answers
// this call too. needsLeader reports whether the client requires a member that knows the leader.
func (s *service) admit(ctx context.Context, calls *versions.Counters, forLearner bool) (needsLeader bool, err error) {
	if !forLearner && s.cfg.Member.IsLearner() {
		return false, rpctypes.ErrGRPCNotSupportedForLearner
	}
	version := "unknown"
	if v := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataClientAPIVersionKey); len(v) > 0 {
		version = v[0]
	}
	if !utf8.ValidString(version) {
		return false, rpctypes.ErrGRPCInvalidClientAPIVersion
	}
	calls.Of(version).Inc()
	if !requiresLeader(ctx) {
		return false, nil
	}
	if s.cfg.Member.Leader() == 0 {
		return true, rpctypes.ErrGRPCNoLeader
	}
	return true, nil
}

// requiresLeader reports whether the client requires a member that knows the leader.
func requiresLeader(ctx context.Context) bool {
	v := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(v) > 0 && v[0] == rpctypes.MetadataHasLeader
}
