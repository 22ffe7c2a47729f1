package replica

import (
	"time"

	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/state/cluster"
)

// Network reaches the other members: with raft messages, calls and snapshots.
type Network interface {
	raftnode.Transport
	transfer.Network
	// SetMembers sets the membership as of a position of the log, at the start and after changes. It does not block.
	SetMembers(index uint64, members *cluster.State)
	// ConnectedSince returns since when messages can be sent to a member, zero if they cannot. It does not block.
	ConnectedSince(id uint64) time.Time
}

// raftTransport returns the network for raft, nil if there is none.
func (r *Replica) raftTransport() raftnode.Transport {
	if r.network == nil {
		return nil
	}
	return r.network
}
