// Package contact tells which other members a member can reach, and from that why a request had no
// result in time.
package contact

import (
	"context"
	"errors"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/state/cluster"
)

// Raft is the member's raft node.
type Raft interface{ Status() raftnode.Status }

// Network reaches the other members.
type Network interface {
	// ConnectedSince returns since when messages can be sent to a member, the zero time if they
	// cannot.
	ConnectedSince(id uint64) time.Time
}

// Membership is the membership as of the applied position.
type Membership interface{ State() *cluster.State }

// Options configure Contacts. Network is nil if there never are other members.
type Options struct {
	MemberID   uint64
	Raft       Raft
	Network    Network
	Membership Membership
	// ElectionTimeout is how long a member waits for a leader.
	ElectionTimeout time.Duration
}

// Contacts are the connections of a member to others.
type Contacts struct{ o Options }

// New returns the Contacts of a member.
func New(o Options) *Contacts { return &Contacts{o} }

// Away reports whether messages cannot be sent to another member now.
func (c *Contacts) Away(id uint64) bool {
	return id != c.o.MemberID && c.o.Network != nil && c.o.Network.ConnectedSince(id).IsZero()
}

// ConnectedTo reports whether messages could be sent to a member ever since a time.
func (c *Contacts) ConnectedTo(id uint64, since time.Time) bool {
	if c.o.Network == nil {
		return true // there are no other members
	}
	t := c.o.Network.ConnectedSince(id)
	return !t.IsZero() && t.Before(since)
}

// CountConnected counts the members that were connected ever since a time, including this one.
func (c *Contacts) CountConnected(members []cluster.Member, since time.Time) (n int) {
	for _, m := range members {
		if m.ID == c.o.MemberID || c.ConnectedTo(m.ID, since) {
			n++
		}
	}
	return n
}

// WaitError returns the error of a wait that began at a time and that ctx has ended.
func (c *Contacts) WaitError(err error, begun time.Time) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return c.TimeoutCause(begun)
	}
	return err
}

// TimeoutCause returns the error of a request that began at a time and has had no result for too
// long.
func (c *Contacts) TimeoutCause(begun time.Time) error {
	st := c.o.Raft.Status()
	// The election before the present leader began about two election timeouts before it.
	election := c.o.ElectionTimeout
	switch {
	case st.Lead == 0:
	case begun.Before(st.LeadSince) && begun.After(st.LeadSince.Add(-2*election)):
		return kv.ErrTimeoutLeaderFailure
	case st.Lead == c.o.MemberID:
		if members := c.o.Membership.State().Members(); c.CountConnected(members,
			begun) < len(members)/2+1 {
			return kv.ErrTimeoutConnectionLost
		}
	case !c.ConnectedTo(st.Lead, begun):
		return kv.ErrTimeoutConnectionLost
	}
	return kv.ErrTimeout
}
