package members

import (
	"sync/atomic"

	"vigil/internal/state/cluster"
)

// Network reaches the members.
type Network interface {
	// SetMembers sets the membership as of a position of the log. It does not block.
	SetMembers(index uint64, members *cluster.State)
}

// Roster is the membership as of the applied position.
type Roster struct {
	memberID uint64
	network  Network // nil if there never are other members
	// state is stored by the apply goroutine.
	state   atomic.Pointer[cluster.State]
	removed chan struct{} // closed when this member has applied its own removal
}

// NewRoster returns the Roster of a member that begins with a membership. network is nil if there
// never are other members.
func NewRoster(memberID uint64, network Network, state *cluster.State) *Roster {
	r := &Roster{memberID: memberID, network: network, removed: make(chan struct{})}
	r.state.Store(state)
	return r
}

// State returns the membership.
func (r *Roster) State() *cluster.State { return r.state.Load() }

// Alone reports whether the cluster has no other member.
func (r *Roster) Alone() bool { return r.State().Alone() }

// Follow takes over the membership of a commit, and announces a new one to the network. The apply
// goroutine calls it.
func (r *Roster) Follow(m *cluster.State, index uint64) {
	if r.state.Swap(m) == m {
		return
	}
	if r.network != nil {
		r.network.SetMembers(index, m)
	}
	if m.Removed(r.memberID) {
		select {
		case <-r.removed:
		default:
			close(r.removed)
		}
	}
}
