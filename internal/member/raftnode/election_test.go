package raftnode

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/store/wal"
)

// threeMembers runs three members with a network that loses nothing, in a bubble of synctest.
func threeMembers(t *testing.T, edit func(*Config)) (*network, []*member) {
	return someMembers(t, 3, edit)
}

func someMembers(t *testing.T, n uint64, edit func(*Config)) (*network, []*member) {
	var voters []uint64
	for id := range n {
		voters = append(voters, id+1)
	}
	net := &network{}
	net.mu.rng = rand.New(rand.NewPCG(1, 2))
	net.mu.nodes = map[uint64]*Node{}
	net.mu.side = map[uint64]int{}
	var members []*member
	for _, id := range voters {
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), func(c *Config) {
			c.ID = id
			c.ConfState = &raftpb.ConfState{Voters: voters}
			c.Transport = port{net, id}
			edit(c)
		})
		members = append(members, m)
		net.mu.Lock()
		net.mu.nodes[id] = m.Node
		net.mu.Unlock()
	}
	return net, members
}

func TestAdvanceElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, members := threeMembers(t, func(*Config) {})
		// No member starts an election within the election timeout, of 10 ticks.
		if did, err := members[1].AdvanceElection(20); err != nil || !did {
			t.Fatal(did, err)
		}
		time.Sleep(500 * time.Millisecond)
		for _, m := range members {
			if st := m.Status(); st.Lead != 2 {
				t.Errorf("half an election timeout after the start: %+v", st)
			}
		}
		before := members[0].Status().Term
		for _, m := range members {
			if did, err := m.AdvanceElection(20); err != nil || did {
				t.Error(did, err)
			}
		}
		time.Sleep(5 * time.Second)
		if st := members[0].Status(); st.Term != before || st.Lead != 2 {
			t.Errorf("with a leader, the clock jumped: %+v", st)
		}
	})
}

// A leader that stops hands over to a member that is there: one whose process has ended, or that
// does not answer, was active for raft until an election timeout is over.
func TestLeadershipGoesToAMemberThatIsThere(t *testing.T) {
	// Raft looks once in an election timeout, which is a second, whom it has heard of.
	for _, gone := range []string{"its streams have ended", "it does not answer"} {
		for at := 2 * time.Second; at < 3*time.Second; at += 100 * time.Millisecond {
			t.Run(fmt.Sprint(gone, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					net, members := threeMembers(t, func(*Config) {})
					if did, err := members[2].AdvanceElection(20); err != nil || !did {
						t.Fatal(did, err)
					}
					time.Sleep(at)
					lead := members[2]
					if lead.LeadTerm() == 0 {
						t.Fatal("member 3 does not lead")
					}
					// Members 1 and 2 have the same log, so that the ids decide.
					net.mu.Lock()
					if gone == "it does not answer" {
						net.mu.drop = func(m *raftpb.Message) bool {
							return m.GetTo() == 1 ||
								m.GetFrom() == 1
						}
					} else {
						net.mu.side[1] = 1
					}
					net.mu.Unlock()
					if gone == "it does not answer" {
						time.Sleep(500 * time.Millisecond) // half an election timeout
					}
					if to, err := lead.TransferLeader(0); err != nil || to != 2 {
						t.Fatalf("handed over to %d, %v, want 2", to, err)
					}
					time.Sleep(200 * time.Millisecond)
					if st := lead.Status(); st.Lead != 2 {
						t.Errorf("%+v, want 2 to lead", st)
					}
				})
			})
		}
	}
}

// A member whose disk is slow acknowledges nothing for a while: messages sent to it until then, and
// keeps in memory, is bounded.
func TestUnacknowledgedBytes(t *testing.T) {
	const most, message = 64 << 10, 4 << 10
	synctest.Test(t, func(t *testing.T) {
		net, members := threeMembers(t,
			func(c *Config) { c.MaxUncommitted, c.MaxMessage = most, message })
		if did, err := members[0].AdvanceElection(20); err != nil || !did {
			t.Fatal(did, err)
		}
		lead := members[0]
		data := strings.Repeat("x", 1<<10)
		put := func(n int) {
			for range n {
				before := lead.index()
				lead.propose(data)
				time.Sleep(100 * time.Millisecond)
				if lead.index() == before {
					t.Fatal("nothing was applied")
				}
			}
		}
		time.Sleep(time.Second)
		put(3)
		sent := 0
		net.mu.Lock()
		net.mu.drop = func(m *raftpb.Message) bool {
			if m.GetTo() == 3 {
				for _, e := range m.GetEntries() {
					sent += len(e.GetData())
				}
			}
			return m.GetFrom() == 3 && m.GetType() == raftpb.MsgAppResp
		}
		net.mu.Unlock()
		put(200)
		net.mu.Lock()
		got := sent
		net.mu.drop = nil
		net.mu.Unlock()
		if got < most/2 || got > most+message {
			t.Errorf("%d bytes were sent without an acknowledgement, want about %d", got, most)
		}
		time.Sleep(5 * time.Second)
		if a, b := lead.index(), members[2].index(); a != b {
			t.Errorf("the member does not catch up: %d of %d", b, a)
		}
	})
}

// A member that was cut off disturbs the leader only if it does not ask first.
func TestPreVote(t *testing.T) {
	for _, without := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			net, members := threeMembers(t, func(c *Config) { c.NoPreVote = without })
			time.Sleep(5 * time.Second)
			lead := members[0].Status().Lead
			before := members[0].Status().Term
			cut := members[lead%3]
			if lead == 0 || before == 0 {
				t.Fatalf("%+v", members[0].Status())
			}
			net.mu.Lock()
			net.mu.side[lead%3+1] = 1
			net.mu.Unlock()
			time.Sleep(10 * time.Second)
			if st := cut.Status(); (st.Term > before) != without || st.Lead != 0 {
				t.Errorf("cut off, without pre-vote %v: %+v, term %d before", without, st, before)
			}
			net.mu.Lock()
			clear(net.mu.side)
			net.mu.Unlock()
			time.Sleep(10 * time.Second)
			if st := members[0].Status(); (st.Term > before) != without || st.Lead == 0 {
				t.Errorf("healed, without pre-vote %v: %+v, term %d before", without, st, before)
			}
		})
	}
}

// looker is a log handler that looks at a member with each line.
type looker struct {
	slog.Handler
	look func()
}

func (l looker) Enabled(context.Context, slog.Level) bool { return true }

func (l looker) Handle(context.Context, slog.Record) error {
	l.look()
	return nil
}

// The leader and the term in a status belong together, also in the middle of a change: no term has
// two leaders.
func TestStatusOfOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		leads := map[uint64]uint64{}
		looks := make([]atomic.Pointer[Node], 4)
		_, members := threeMembers(t, func(c *Config) {
			id := c.ID
			c.Logger = slog.New(looker{slog.DiscardHandler, func() {
				n := looks[id].Load()
				if n == nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				st := n.Status()
				if was := leads[st.Term]; st.Lead != 0 && was != 0 && was != st.Lead {
					t.Errorf("member %d: in term %d %d leads, and before %d", id,
						st.Term, st.Lead, was)
				}
				if st.Lead != 0 {
					leads[st.Term] = st.Lead
				}
			}})
		})
		for i, m := range members {
			looks[i+1].Store(m.Node)
		}
		for range 5 {
			time.Sleep(5*testTimeout + testTick/2)
			for _, m := range members {
				if _, err := m.TransferLeader(0); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(5 * testTimeout)
		mu.Lock()
		defer mu.Unlock()
		if len(leads) < 3 {
			t.Errorf("leaders by term: %v", leads)
		}
	})
}

// What is asked of a leader ends with its leadership, at each member when it knows.
func TestLeadershipEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, members := threeMembers(t, func(*Config) {})
		time.Sleep(5 * time.Second)
		lead := members[0].Status().Lead
		for i, m := range members {
			if id, while := m.Leader(); id != lead || while.Err() != nil {
				t.Errorf("member %d: %d leads, want %d, %v", i+1, id, lead, while.Err())
			}
		}
		cut := members[lead%3]
		_, while := cut.Leader()
		_, others := members[lead-1].Leader()
		net.mu.Lock()
		net.mu.side[lead%3+1] = 1
		net.mu.Unlock()
		time.Sleep(10 * time.Second)
		if id, now := cut.Leader(); id != 0 || now.Err() != nil || while.Err() == nil {
			t.Errorf("cut off: %d leads, %v, before %v", id, now.Err(), while.Err())
		}
		if others.Err() != nil {
			t.Error("the leadership has ended where the leader is known")
		}
	})
}
