package raftnode

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
)

// electionTimeout is that of members in these tests.
const electionTimeout = time.Second

// leaderOf waits until all members but one name the same leader, which is not that one, and returns
// it.
func leaderOf(t *testing.T, members []*member, without uint64, within time.Duration) *member {
	t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		leads, n := map[uint64]int{}, 0
		for _, m := range members {
			if m.cfg.ID != without {
				leads[m.Status().Lead]++
				n++
			}
		}
		for _, m := range members {
			if m.cfg.ID != without && leads[m.cfg.ID] == n {
				// messages of another election may be on their way
				time.Sleep(100 * time.Millisecond)
				if m.Status().Lead == m.cfg.ID {
					return m
				}
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no other leader within %v: %v", within, leads)
		}
	}
}

// stalls are ways in which a member stops to do its part while it still answers.
var stalls = map[string]func(*member) (resume func()){
	"an append that hangs": func(m *member) func() { return m.log.hang() },
	"a full disk": func(m *member) func() {
		m.log.fail(fmt.Errorf("append: %w", kv.ErrNoSpace), nil)
		return func() { m.log.fail(nil, nil) }
	},
	"appends of two seconds": func(m *member) func() {
		m.log.pace.Store(int64(2 * time.Second))
		return func() { m.log.pace.Store(0) }
	},
	"applying that hangs": func(m *member) func() { return m.holdApplying() },
}

// ended returns a function that ends a stall once, at the end of the test at the latest.
func ended(t *testing.T, resume func()) func() {
	once := sync.OnceFunc(resume)
	t.Cleanup(once)
	return once
}

// A leader that does not do what a majority does loses its leadership to a member that does, within
// two election timeouts, and does not get it back before it works again.
func TestStalledLeaderIsReplaced(t *testing.T) {
	for name, stall := range stalls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, members := someMembers(t, 5, func(*Config) {})
				lead := leaderOf(t, members, 0, 5*time.Second)
				before := lead.Status()
				resume := ended(t, stall(lead))
				began := time.Now()
				lead.propose("first")
				next := leaderOf(t, members, before.Lead, 2*electionTimeout)
				t.Logf("another leader after %v", time.Since(began))
				if lead.Status().Relieved != 1 || next.Status().Relieved != 0 {
					t.Errorf("the old leader was relieved %d times, the new one %d times",
						lead.Status().Relieved, next.Status().Relieved)
				}
				for i := range 300 { // 30 seconds
					next.propose(fmt.Sprint(i))
					time.Sleep(100 * time.Millisecond)
					if i%20 == 19 && next.index() < next.Status().Committed {
						t.Fatalf("the new leader has applied %d of %d", next.index(),
							next.Status().Committed)
					}
					if st := next.Status(); st.Lead != next.cfg.ID {
						t.Fatalf("leadership moved on from %d to %d", next.cfg.ID, st.Lead)
					}
				}
				// Nor does it win an election while others can.
				next.Stop()
				rest := slices.DeleteFunc(members, func(m *member) bool { return m == next })
				third := leaderOf(t, rest, before.Lead, 20*electionTimeout)
				resume()
				time.Sleep(5 * time.Second)
				if lead.Status().Stalled || third.Status().Stalled {
					t.Error("a member that works is called stalled")
				}
				if a, b := lead.index(), third.index(); a != b {
					t.Errorf("it has applied %d of %d", a, b)
				}
				if !lead.Status().Current.After(time.Now().Add(-time.Second)) {
					t.Error("it still counts as standing still")
				}
			})
		})
	}
}

// A leader whose request to take over does not arrive falls silent, so that others elect.
func TestStalledLeaderFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, members := threeMembers(t, func(*Config) {})
		lead := leaderOf(t, members, 0, 5*time.Second)
		id := lead.cfg.ID
		net.mu.Lock()
		net.mu.drop = func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgTimeoutNow }
		net.mu.Unlock()
		ended(t, lead.log.hang())
		lead.propose("first")
		leaderOf(t, members, id, 6*electionTimeout)
	})
}

// A disk that is slow but works costs no leadership: neither that of the leader, nor one that all
// members have.
func TestSlowLeaderStays(t *testing.T) {
	for _, c := range []struct {
		leader, others time.Duration
	}{{250 * time.Millisecond, 0}, {800 * time.Millisecond, 0}, {2 * time.Second, 2 * time.Second},
		{2500 * time.Millisecond, 2 * time.Second}} {
		t.Run(fmt.Sprint(c.leader, " ", c.others), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, members := threeMembers(t, func(*Config) {})
				lead := leaderOf(t, members, 0, 5*time.Second)
				before := lead.Status()
				for _, m := range members {
					m.source.many.Store(true)
					m.log.pace.Store(int64(c.others))
				}
				lead.log.pace.Store(int64(c.leader))
				for i := range 300 {
					lead.propose(fmt.Sprint(i))
					time.Sleep(100 * time.Millisecond)
				}
				lead.log.pace.Store(0)
				time.Sleep(3 * time.Second)
				for _, m := range members {
					m.log.pace.Store(0)
				}
				time.Sleep(10 * time.Second)
				if st := lead.Status(); st.Term != before.Term || len(lead.applied()) < 250 {
					t.Errorf("from %+v to %+v, %d applied", before, st, len(lead.applied()))
				}
			})
		})
	}
}

// What stands still at all members, or where no majority would be left, moves no leadership.
func TestNobodyIsBetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, members := threeMembers(t, func(*Config) {})
		lead := leaderOf(t, members, 0, 5*time.Second)
		before := lead.Status()
		var releases []func()
		for _, m := range members {
			releases = append(releases, ended(t, m.holdApplying()))
		}
		lead.propose("all wait")
		time.Sleep(10 * time.Second)
		for _, r := range releases {
			r()
		}
		time.Sleep(time.Second)
		if st := lead.Status(); st.Term != before.Term || st.Lead != before.Lead {
			t.Errorf("from %+v to %+v while all stood still", before, st)
		}
		members[lead.cfg.ID%3].Stop()
		resume := ended(t, lead.log.hang())
		lead.propose("without a majority of others")
		time.Sleep(10 * time.Second)
		if st := lead.Status(); st.Term != before.Term || st.Lead != before.Lead {
			t.Errorf("from %+v to %+v without a majority of others", before, st)
		}
		if lead.Status().Current.After(time.Now().Add(-9 * time.Second)) {
			t.Error("time goes on while it stands still")
		}
		resume()
	})
}

// The only voter leads whatever its disk does.
func TestStalledSingleVoterLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, members := threeMembers(t,
			func(c *Config) { c.ConfState = &raftpb.ConfState{Voters: []uint64{c.ID}} })
		m := members[0]
		time.Sleep(time.Second)
		resume := ended(t, m.log.hang())
		m.propose("x")
		time.Sleep(30 * time.Second)
		if st := m.Status(); st.Lead != 1 {
			t.Errorf("%+v", st)
		}
		if m.Status().Current.After(time.Now().Add(-29*time.Second)) || !m.Status().Stalled {
			t.Errorf("time goes on while it stands still, or it is not called stalled: %v",
				m.Status().Stalled)
		}
		resume()
		time.Sleep(time.Second)
		if len(m.applied()) != 1 {
			t.Error("nothing was applied")
		}
	})
}

// A member that stands still does not ask for votes, but for one election in some, and takes over
// from nobody.
func TestStalledMemberDoesNotCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, members := threeMembers(t, func(*Config) {})
		lead := leaderOf(t, members, 0, 5*time.Second)
		sick := members[lead.cfg.ID%3]
		resume := ended(t, sick.log.hang())
		lead.propose("x")
		time.Sleep(3 * time.Second)
		asked := 0
		net.mu.Lock()
		net.mu.drop = func(m *raftpb.Message) bool {
			if m.GetFrom() == sick.cfg.ID && m.GetTo() == lead.cfg.ID &&
				m.GetType() == raftpb.MsgPreVote {
				asked++
			}
			return m.GetFrom() == lead.cfg.ID && m.GetTo() == sick.cfg.ID
		}
		net.mu.Unlock()
		if chosen, err := lead.TransferLeader(sick.cfg.ID); err != nil || chosen != sick.cfg.ID {
			t.Fatal(chosen, err)
		}
		time.Sleep(30 * time.Second)
		net.mu.Lock()
		defer net.mu.Unlock()
		if st := lead.Status(); asked < 2 || asked > 6 || st.Lead != lead.cfg.ID {
			t.Errorf("it asked for votes %d times in 30 election timeouts; the leader is %d",
				asked, st.Lead)
		}
		resume()
	})
}

// A member that has stood still lately is not asked to lead, but counts for the majority of the
// others.
func TestSecondStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, members := threeMembers(t, func(*Config) {})
		first := leaderOf(t, members, 0, 5*time.Second)
		resume := ended(t, first.log.hang())
		first.propose("first")
		second := leaderOf(t, members, first.cfg.ID, 2*electionTimeout)
		second.propose("second")
		time.Sleep(3 * time.Second)
		resume()
		time.Sleep(500 * time.Millisecond)
		ended(t, second.log.hang())
		second.propose("third")
		if third := leaderOf(t, members, second.cfg.ID, 2*electionTimeout); third == first {
			t.Error("the member that has just stood still leads")
		}
	})
}

// A leader that gets on, and does less than it gets, loses its leadership to a member that does all
// of it.
func TestLateLeaderIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, members := threeMembers(t, func(*Config) {})
		lead := leaderOf(t, members, 0, 5*time.Second)
		before, began := lead.Status(), time.Now()
		lead.pace.Store(int64(300 * time.Millisecond))
		for range 80 { // 4 seconds
			lead.propose("x")
			time.Sleep(50 * time.Millisecond)
		}
		next := leaderOf(t, members, before.Lead, electionTimeout)
		if since := next.Status().LeadSince.Sub(began); since > 4*electionTimeout {
			t.Errorf("another leader after %v", since)
		}
		lead.pace.Store(0)
	})
}

// The time of a leader that gets on, and always applies late, goes on, if slowly: a lease that
// nobody renews must end, also where all members are overloaded for as long as they run.
func TestTimeOfAnOverloadedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, members := threeMembers(t, func(*Config) {})
		lead := leaderOf(t, members, 0, 5*time.Second)
		for _, m := range members {
			m.source.many.Store(true)
			m.pace.Store(int64(300 * time.Millisecond))
		}
		late := time.Duration(0)
		for range 1200 { // a minute
			if lead.Status().Committed < lead.index()+10 {
				lead.propose("x")
			}
			time.Sleep(50 * time.Millisecond)
			late = max(late, time.Since(lead.Status().Current))
		}
		if late < 2*electionTimeout || late > 10*time.Second {
			t.Errorf("the time stood still for %v", late)
		}
		for _, m := range members {
			m.pace.Store(0)
		}
	})
}
