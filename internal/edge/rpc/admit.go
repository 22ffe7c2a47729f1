package rpc

import (
	"context"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// admit decides by its metadata and by the state of the member whether a call is let in.
// forLearner says that a learner answers this call too. needsLeader is whether the client asked to
// be refused by a member that knows no leader.
func (s *service) admit(ctx context.Context, calls *callCounters, forLearner bool) (needsLeader bool, err error) {
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
	calls.of(version).Inc()
	if !requiresLeader(ctx) {
		return false, nil
	}
	if s.cfg.Member.Leader() == 0 {
		return true, rpctypes.ErrGRPCNoLeader
	}
	return true, nil
}

// requiresLeader is whether the client asked to be refused by a member that knows no leader.
func requiresLeader(ctx context.Context) bool {
	v := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(v) > 0 && v[0] == rpctypes.MetadataHasLeader
}
