package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// MaxVoters is the limit for voters. Each write waits for a majority of them, so useful clusters
// are far smaller.
const MaxVoters = 100

// The limits of a member. Peers exchange the peer URLs when they connect, so package peer has the
// same limit.
const (
	MaxPeerURLs     = 16
	MaxPeerURLBytes = 512
	MaxClientURLs   = 1 << 10
)

// Member is one member of the cluster. Its slices are never modified.
type Member struct {
	ID uint64
	// Name is empty until the member has started once and published it.
	Name string
	// PeerURLs are the URLs for other members, sorted.
	PeerURLs []string
	// ClientURLs are the URLs for clients, which the member publishes.
	ClientURLs []string
	// Level is the level of requests that the member knows, which it publishes; 0 if it has not
	// published any.
	Level uint64
	// Learner is set while the member receives the log and does not vote.
	Learner bool
	// later holds attributes of later versions.
	later later
}

// later is the part of a member record that this program does not know.
type later struct {
	flags  byte
	fields string
}

// State is the membership at one position of the log.
type State struct {
	members []Member // sorted by id
	removed []uint64 // sorted
}

// Initial returns the membership of a new cluster: every member is a voter, and ids are derived
// from peer URLs and token. ClientURLs and ID of the given members are ignored.
func Initial(token string, members []Member) (*State, error) {
	if len(members) == 0 {
		return nil, errors.New("cluster: no members")
	}
	s := &State{}
	for _, m := range members {
		if len(m.PeerURLs) == 0 {
			return nil, fmt.Errorf("cluster: member %q has no peer url", m.Name)
		}
		m.ID = MemberID(m.PeerURLs, token, 0)
		m.PeerURLs = slices.Clone(m.PeerURLs)
		slices.Sort(m.PeerURLs)
		m.ClientURLs, m.Learner, m.Level = nil, false, 0
		if m.ID == 0 {
			return nil, fmt.Errorf("cluster: member %q: id 0 cannot be used", m.Name)
		}
		next, _, err := s.Change(Change{Op: Add, Member: m})
		if err != nil {
			return nil, fmt.Errorf("cluster: member %q: %w", m.Name, err)
		}
		s = next
	}
	return s, nil
}

// Members returns the members, sorted by id. The caller must not modify it.
func (s *State) Members() []Member { return s.members }

// Alone reports whether there is one member.
func (s *State) Alone() bool { return len(s.members) == 1 }

// Voters returns the members that are not learners, sorted by id.
func (s *State) Voters() (out []Member) {
	for _, m := range s.members {
		if !m.Learner {
			out = append(out, m)
		}
	}
	return out
}

// IDs returns the ids of the members, sorted.
func (s *State) IDs() []uint64 {
	ids := make([]uint64, len(s.members))
	for i, m := range s.members {
		ids[i] = m.ID
	}
	return ids
}

// Member returns the member with an id.
func (s *State) Member(id uint64) (Member, bool) {
	if i, ok := s.find(id); ok {
		return s.members[i], true
	}
	return Member{}, false
}

// Removed reports whether the id belongs to a removed member.
func (s *State) Removed(id uint64) bool {
	_, ok := slices.BinarySearch(s.removed, id)
	return ok
}

// RemovedIDs returns the ids of removed members, sorted. The caller must not modify it.
func (s *State) RemovedIDs() []uint64 { return s.removed }

// Level returns the level of requests that may be proposed: every member that has published its
// attributes knows them. It does not count other members: they publish their level before they
// serve, and a member with a lower level is rejected. So the level of a cluster does not decrease.
func (s *State) Level() uint64 {
	level := uint64(0)
	for _, m := range s.members {
		if !m.served() {
			continue
		}
		if own := max(m.Level, 1); level == 0 || own < level {
			level = own
		}
	}
	return max(level, 1)
}

func (s *State) find(id uint64) (int, bool) {
	return slices.BinarySearchFunc(s.members, id,
		func(m Member, id uint64) int { return cmp.Compare(m.ID, id) })
}

// valid reports the first invariant that s breaks.
func (s *State) valid() error {
	owner := map[string]uint64{}
	for i, m := range s.members {
		if i > 0 && s.members[i-1].ID >= m.ID {
			return fmt.Errorf("invariant 1: %x before %x", s.members[i-1].ID, m.ID)
		}
		if s.Removed(m.ID) {
			return fmt.Errorf("invariant 2: %x is a member and removed", m.ID)
		}
		for _, u := range m.PeerURLs {
			if o, ok := owner[u]; ok && o != m.ID {
				return fmt.Errorf("invariant 3: %s belongs to %x and %x", u, o, m.ID)
			}
			owner[u] = m.ID
		}
	}
	if !slices.IsSorted(s.removed) {
		return errors.New("removed ids are not sorted")
	}
	return nil
}
