package replica

import (
	"context"
	"log/slog"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/state/cluster"
)

// A member that is to be the only one starts raft with itself as the only voter, whatever its store says,
// so that it can commit everything its log holds: some of it may have been acknowledged, and none of it is
// known to be lost. Configuration changes among that change the membership and not raft. Then it promotes
// itself if it had no vote, and removes the others, by ordinary entries: with them the store has the new
// configuration, and later starts need no force.

// confState is raft's configuration to begin with.
func (ms *Members) confState(stored *raftpb.ConfState) *raftpb.ConfState {
	if !ms.r.cfg.ForceNewCluster {
		return stored
	}
	ms.forcing.Store(true)
	return &raftpb.ConfState{Voters: []uint64{ms.r.memberID}}
}

// nothingFor is a configuration change that changes nothing.
func nothingFor(member uint64) *raftpb.ConfChangeV2 {
	return &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
		Type: raftpb.ConfChangeUpdateNode.Enum(), NodeId: new(member)}}}
}

// beAlone makes the membership what raft's configuration was forced to be.
func (ms *Members) beAlone(ctx context.Context) error {
	for {
		next, ok := ms.nextForced()
		if !ok {
			ms.forcing.Store(false)
			return nil
		}
		if _, err := ms.reconfigure(ctx, next); err != nil {
			return err
		}
		ms.r.cfg.Logger.Warn("forced a change of the membership", slog.String("change", opNames[next.Op]), hexID("member-id", next.Member.ID))
	}
}

// nextForced returns a change that is missing. The promotion comes first: the last voter cannot be removed.
func (ms *Members) nextForced() (cluster.Change, bool) {
	members := ms.state.Load()
	if self, ok := members.Member(ms.r.memberID); ok && self.Learner {
		return cluster.Change{Op: cluster.Promote, Member: cluster.Member{ID: ms.r.memberID}}, true
	}
	for _, m := range members.Members() {
		if m.ID != ms.r.memberID {
			return cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: m.ID}}, true
		}
	}
	return cluster.Change{}, false
}
