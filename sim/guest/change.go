//go:build wasip1

package main

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/sim/scenario/setup"
)

// changer changes the membership as an operator does: it repeats what failed, and looks at the list of members to see
// what became of a request without an answer.
type changer struct {
	*client.Client
	c setup.Change
}

const changeTimeout = 2 * time.Second

// runChange makes one change, and reports the members whenever it has read their list.
func runChange(c setup.Change) error {
	cl, err := connect(c.Endpoints...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ch := &changer{cl, c}
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
	}
	return nil
}

// until reads the list of members until done returns true, which makes at most one request. It reports false if it gave up.
func (ch *changer) until(done func(*setup.Members) bool) bool {
	for int64(now()) < ch.c.Until {
		m := &setup.Members{Called: int64(now())}
		ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
		r, err := ch.MemberList(ctx)
		cancel()
		if err == nil {
			reportMembers(m, r.Members)
			if done(m) {
				return true
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
	return false
}

// reportMembers completes a list of members and reports it.
func reportMembers(m *setup.Members, list []*etcdserverpb.Member) {
	for _, x := range list {
		m.List = append(m.List, setup.Listed{ID: x.ID, PeerURL: x.PeerURLs[0], Learner: x.IsLearner})
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
		request(func(ctx context.Context) (any, error) {
			add := ch.MemberAdd
			if learner {
				add = ch.MemberAddLearner
			}
			r, err := add(ctx, ch.c.PeerURL)
			if err == nil {
				// The second voter must start before a list can be read linearizably: the answer is the only one until then.
				reportMembers(&setup.Members{Called: int64(now())}, r.Members)
			}
			return r, err
		})
		return false
	})
	if added && learner {
		ch.until(func(m *setup.Members) bool { return ch.promote(m, ch.c.PeerURL) })
	}
}

// promote asks for the promotion of the learners, or of one, and reports whether there is none any more.
func (ch *changer) promote(m *setup.Members, url string) bool {
	left := false
	for _, x := range m.List {
		if x.Learner && (url == "" || url == x.PeerURL) {
			left = true
			request(func(ctx context.Context) (any, error) { return ch.MemberPromote(ctx, x.ID) })
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
		request(func(ctx context.Context) (any, error) { return ch.MemberRemove(ctx, id) })
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
		request(func(ctx context.Context) (any, error) { return ch.MemberUpdate(ctx, x.ID, ch.c.NewURL) })
		return false
	})
}
