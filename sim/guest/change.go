//go:build wasip1

package main

import (
	"context"
	"slices"
	"time"

	"vigil/client"
	"vigil/sim/scenario/setup"
)

// changer changes the membership as an operator does: it repeats what failed, and looks at the list
// of members to see what became of a request without an answer.
type changer struct {
	*client.Client
	c setup.Change
	// before is the last list that was read linearizably, and adding is set after the addition of a
	// member was requested.
	before []uint64
	adding bool
	// impatient cancels the first addition under way.
	impatient time.Duration
}

const changeTimeout = 2 * time.Second

// runChange makes one change, and reports the members whenever it has read their list.
func runChange(c setup.Change) error {
	cl, err := connect(c.Endpoints...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ch := &changer{Client: cl, c: c}
	switch c.Kind {
	case setup.AddLearner, setup.AddVoter:
		ch.add()
	case setup.Remove:
		ch.remove()
	case setup.Replace, setup.ReplaceBy:
		if ch.remove() {
			ch.add()
		}
	case setup.Move:
		ch.move()
	case setup.Settle:
		ch.until(func(m *setup.Members) bool { return ch.promote(m, "") })
	case setup.Rescue:
		return ch.rescue()
	}
	return nil
}

// until reads the list of members until done returns true, which makes at most one request. It
// reports false if it gave up.
func (ch *changer) until(done func(*setup.Members) bool) bool {
	for int64(now()) < ch.c.Until {
		m := &setup.Members{Called: int64(now())}
		ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
		r, err := ch.Cluster().MemberList(ctx)
		cancel()
		if err == nil {
			reportMembers(m, r.Members)
			if done(m) {
				return true
			}
		} else if ch.adding {
			ch.lookForAdded()
		}
		time.Sleep(300 * time.Millisecond)
	}
	return false
}

// lookForAdded asks single members for the list of members that they know, and reports one that has
// the requested member. A cluster of one member that adds a second voter has no quorum before that
// starts, so if the answer to the addition is lost, no list can be read linearizably. Nobody else
// changes the members, so such a list is the newest one.
func (ch *changer) lookForAdded() {
	m := &setup.Members{Called: int64(now())}
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	defer cancel()
	r, err := ch.Cluster().MemberListSerializable(ctx)
	if err != nil || len(r.Members) != len(ch.before)+1 {
		return
	}
	for _, x := range r.Members {
		added := x.PeerURLs[0] == ch.c.PeerURL && !slices.Contains(ch.c.Former, x.ID)
		if !added && !slices.Contains(ch.before, x.ID) {
			return // it is the list of a member that lags
		}
	}
	reportMembers(m, r.Members)
}

// reportMembers completes a list of members and reports it.
func reportMembers(m *setup.Members, list []client.Member) {
	for _, x := range list {
		m.List = append(m.List,
			setup.Listed{ID: x.ID, PeerURL: x.PeerURLs[0], Learner: x.IsLearner})
	}
	report(setup.Report{Members: m})
}

// request makes a request, which may fail: the next list shows whether it took effect.
func request(do func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	defer cancel()
	_, _ = do(ctx)
}

// at returns the member with a peer URL, or nil.
func at(m *setup.Members, url string) *setup.Listed {
	for n := range m.List {
		if m.List[n].PeerURL == url {
			return &m.List[n]
		}
	}
	return nil
}

func (ch *changer) add() {
	learner := ch.c.Kind == setup.AddLearner || ch.c.Kind == setup.ReplaceBy
	added := ch.until(func(m *setup.Members) bool {
		if at(m, ch.c.PeerURL) != nil {
			return true
		}
		ch.before, ch.adding = nil, true
		for _, l := range m.List {
			ch.before = append(ch.before, l.ID)
		}
		request(func(ctx context.Context) (any, error) {
			if ch.impatient > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, ch.impatient)
				ch.impatient = 0
				defer cancel()
			}
			add := ch.Cluster().MemberAdd
			if learner {
				add = ch.Cluster().MemberAddLearner
			}
			r, err := add(ctx, ch.c.PeerURL)
			if err == nil {
				// The second voter must start before a list can be read linearizably: the answer is
				// the only one until then.
				reportMembers(&setup.Members{Called: int64(now())}, r.Members)
			}
			return r, err
		})
		return false
	})
	if added && learner {
		promotion := int64(now()) + ch.c.Linger
		ch.until(func(*setup.Members) bool { return int64(now()) >= promotion })
		ch.until(func(m *setup.Members) bool { return ch.promote(m, ch.c.PeerURL) })
	}
}

// promote asks for the promotion of the learners, or of one, and reports whether there is none any
// more.
func (ch *changer) promote(m *setup.Members, url string) bool {
	left := false
	for _, x := range m.List {
		if x.Learner && (url == "" || url == x.PeerURL) {
			left = true
			request(func(ctx context.Context) (any,
				error) {
				return ch.Cluster().MemberPromote(ctx, x.ID)
			})
		}
	}
	return !left
}

func (ch *changer) remove() bool {
	var id uint64
	return ch.until(func(m *setup.Members) bool {
		x := at(m, ch.c.PeerURL)
		if x == nil || id != 0 && x.ID != id {
			return true
		}
		id = x.ID
		request(func(ctx context.Context) (any,
			error) {
			return ch.Cluster().MemberRemove(ctx, id)
		})
		return false
	})
}

func (ch *changer) move() {
	said := false
	ch.until(func(m *setup.Members) bool {
		x := at(m, ch.c.PeerURL)
		if x == nil {
			return true // it has moved, or was removed
		}
		if !said {
			said = true
			report(setup.Report{Moving: ch.c.NewURL})
		}
		request(func(ctx context.Context) (any,
			error) {
			return ch.Cluster().MemberUpdate(ctx, x.ID, ch.c.NewURL)
		})
		return false
	})
}
