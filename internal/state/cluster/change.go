package cluster

import (
	"errors"
	"fmt"
	"slices"

	"vigil/internal/kv"
)

// The reasons for which a change is rejected.
var (
	// ErrIDRemoved: the id belonged to a member that was removed.
	ErrIDRemoved = errors.New("cluster: id has been removed")
	// ErrIDExists: a member of that id exists.
	ErrIDExists = errors.New("cluster: id exists")
	// ErrIDNotFound: no member of that id exists.
	ErrIDNotFound = errors.New("cluster: id not found")
	// ErrPeerURLExists: another member has one of the peer URLs.
	ErrPeerURLExists = errors.New("cluster: peer url exists")
	// ErrNotLearner: a voter cannot be promoted.
	ErrNotLearner = errors.New("cluster: member is not a learner")
	// ErrLastVoter: a cluster without a voter could never commit anything again.
	ErrLastVoter = errors.New("cluster: the last voter cannot be removed")
	// ErrTooManyLearners: the limit of the proposer for learners is reached.
	ErrTooManyLearners = errors.New("cluster: too many learners")
	// ErrTooManyVoters: the limit for voters is reached.
	ErrTooManyVoters error = &kv.LimitError{What: "voters of a cluster", Limit: MaxVoters,
		Advice: "remove a voter first, or add a learner"}
	// ErrNotEnoughStarted: fewer voters than a quorum would have been started.
	ErrNotEnoughStarted = errors.New("cluster: not enough started members")
)

// ChangeOp is a kind of change.
type ChangeOp uint8

// The changes of a membership. Add, Remove, Update and Promote are raft configuration changes,
// SetAttributes is a request.
const (
	// Add adds Member, as a learner if Member.Learner is set.
	Add ChangeOp = iota + 1
	// Remove removes Member.ID, which cannot be added again.
	Remove
	// Update replaces the peer URLs of Member.ID.
	Update
	// Promote makes the learner Member.ID a voter.
	Promote
	// SetAttributes replaces name, client URLs and level of Member.ID.
	SetAttributes
)

// Change is one change of the membership. It contains the limits of its proposer: other changes may
// be applied before it, and every member must decide alike.
type Change struct {
	Op     ChangeOp
	Member Member
	// MaxLearners is the limit for learners after an Add of a learner; 0 is no limit.
	MaxLearners uint32
	// Strict rejects a change after which fewer voters than a quorum would have been started.
	Strict bool
}

// Change returns the membership after c and the record that c writes, or s and the reason why c is
// rejected.
func (s *State) Change(c Change) (*State, Record, error) {
	if err := s.check(c); err != nil {
		return s, Record{}, err
	}
	next := &State{members: slices.Clone(s.members), removed: s.removed}
	i, _ := next.find(c.Member.ID)
	switch c.Op {
	case Add:
		next.members = slices.Insert(next.members, i, c.Member)
	case Remove:
		next.members = slices.Delete(next.members, i, i+1)
		at, _ := slices.BinarySearch(s.removed, c.Member.ID)
		next.removed = slices.Insert(slices.Clone(s.removed), at, c.Member.ID)
		return next, Record{ID: c.Member.ID, Value: encodeRemoved()}, nil
	case Update:
		next.members[i].PeerURLs = c.Member.PeerURLs
	case Promote:
		next.members[i].Learner = false
	case SetAttributes:
		m := &next.members[i]
		m.Name, m.ClientURLs, m.Level, m.later = c.Member.Name, c.Member.ClientURLs,
			c.Member.Level, c.Member.later
	}
	return next, Record{ID: c.Member.ID, Value: EncodeMember(next.members[i])}, nil
}

func (s *State) check(c Change) error {
	if s.Removed(c.Member.ID) {
		return ErrIDRemoved
	}
	i, found := s.find(c.Member.ID)
	if c.Op == Add {
		if found {
			return ErrIDExists
		}
		if err := s.checkURLs(c.Member); err != nil {
			return err
		}
		if c.Member.Learner && c.MaxLearners > 0 &&
			len(s.members)-s.voters() >= int(c.MaxLearners) {
			return ErrTooManyLearners
		}
		if !c.Member.Learner && s.voters() >= MaxVoters {
			return ErrTooManyVoters
		}
		return s.checkStarted(c)
	}
	if !found {
		return ErrIDNotFound
	}
	switch c.Op {
	case Update:
		return s.checkURLs(c.Member)
	case Promote:
		if !s.members[i].Learner {
			return ErrNotLearner
		}
		if s.voters() >= MaxVoters {
			return ErrTooManyVoters
		}
	case Remove:
		if !s.members[i].Learner && s.voters() == 1 {
			return ErrLastVoter
		}
	case SetAttributes:
		return CheckClientURLs(c.Member.ClientURLs)
	default:
		return fmt.Errorf("cluster: unknown change %d", c.Op)
	}
	return s.checkStarted(c)
}

func (s *State) checkStarted(c Change) error {
	if c.Strict && !s.enoughStarted(c, (*Member).served) {
		return ErrNotEnoughStarted
	}
	return nil
}

// CheckClientURLs returns why a member may not have these client URLs.
func CheckClientURLs(urls []string) error {
	if len(urls) > MaxClientURLs {
		return fmt.Errorf("cluster: %d client urls of a member, the most is %d",
			len(urls), MaxClientURLs)
	}
	return nil
}

// served reports whether the member has published its attributes. Names do not show it: the initial
// names depend on how each member found the others.
func (m *Member) served() bool { return m.Level != 0 || len(m.ClientURLs) > 0 }

// EnoughNamed reports whether a change may be proposed: whether a quorum of the voters after it
// would have a name, or have been started. It is weaker than the check when the change is applied.
// As in etcd, the check of connections judges initial members that have not started: its error is
// more precise.
func (s *State) EnoughNamed(c Change) bool {
	return s.enoughStarted(c, func(m *Member) bool { return m.Name != "" || m.served() })
}

// enoughStarted reports whether a quorum of the voters after a change would count as started.
// Changes that do not affect voters pass, and so does the second voter of a cluster of one member.
func (s *State) enoughStarted(c Change, counts func(*Member) bool) bool {
	voters, started := 0, 0
	for _, m := range s.members {
		removed := c.Op == Remove && m.ID == c.Member.ID
		if m.Learner {
			if removed {
				return true
			}
			continue
		}
		if !removed {
			voters++
		}
		if !removed && counts(&m) {
			started++
		}
	}
	switch c.Op {
	case Add:
		if c.Member.Learner || voters == 1 && started == 1 {
			return true
		}
		voters++
	case Promote:
		voters++
		started++
	case Remove:
	default:
		return true
	}
	return started >= voters/2+1
}

// voters counts the members that vote.
func (s *State) voters() (n int) {
	for _, m := range s.members {
		if !m.Learner {
			n++
		}
	}
	return n
}

func (s *State) checkURLs(m Member) error {
	if len(m.PeerURLs) > MaxPeerURLs {
		return fmt.Errorf("cluster: %d peer urls of a member, the most is %d",
			len(m.PeerURLs), MaxPeerURLs)
	}
	for _, u := range m.PeerURLs {
		if len(u) > MaxPeerURLBytes {
			return fmt.Errorf("cluster: peer url of %d bytes, the most is %d", len(u),
				MaxPeerURLBytes)
		}
	}
	if err := CheckClientURLs(m.ClientURLs); err != nil {
		return err
	}
	for _, o := range s.members {
		if o.ID == m.ID {
			continue
		}
		for _, u := range o.PeerURLs {
			if slices.Contains(m.PeerURLs, u) {
				return ErrPeerURLExists
			}
		}
	}
	return nil
}
