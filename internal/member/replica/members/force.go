package members

import (
	"context"
	"log/slog"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
)

// A member that is to be the only one starts raft with itself as the only voter, whatever its store
// says, so that it can commit everything its log holds: some of it may have been acknowledged, and
// none of it is known to be lost. Configuration changes among that change the membership and not
// raft. Then it promotes itself if it had no vote, and removes the others, by ordinary entries:
// with them the store has the new configuration, and later starts need no force. Before that it
// begins a new incarnation: the others may go on.

// ForcedConf returns raft's configuration to begin with.
func ForcedConf(member uint64) *raftpb.ConfState {
	return &raftpb.ConfState{Voters: []uint64{member}}
}

// Forcing reports whether this member is still becoming the only one.
func (ms *Members) Forcing() bool { return ms.forcing.Load() }

// MustForce reports whether the membership still differs from the configuration that raft was
// forced to.
func (ms *Members) MustForce() bool {
	_, missing := ms.nextForced()
	return missing
}

// BeAlone changes the membership to the configuration that raft was forced to.
func (ms *Members) BeAlone(ctx context.Context) error {
	for {
		next, ok := ms.nextForced()
		if !ok {
			ms.forcing.Store(false)
			return nil
		}
		who, err := ms.o.Access.Identity(kv.AsMember(ctx))
		if err != nil {
			return err
		}
		if _, err := ms.reconfigure(ctx, next, who); err != nil {
			return err
		}
		ms.o.Logger.Warn("forced a change of the membership",
			slog.String("change", opNames[next.Op]), hexID("member-id", next.Member.ID))
	}
}

// nextForced returns a change that is missing. The promotion comes first: the last voter cannot be
// removed.
func (ms *Members) nextForced() (cluster.Change, bool) {
	members := ms.o.Roster.State()
	if self, ok := members.Member(ms.o.MemberID); ok && self.Learner {
		return cluster.Change{Op: cluster.Promote, Member: cluster.Member{ID: ms.o.MemberID}}, true
	}
	for _, m := range members.Members() {
		if m.ID != ms.o.MemberID {
			return cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: m.ID}}, true
		}
	}
	return cluster.Change{}, false
}
