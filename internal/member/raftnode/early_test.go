package raftnode

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/store/wal"
)

const (
	testTick    = 100 * time.Millisecond
	testTimeout = DefaultElectionTicks * testTick
)

// cluster is some members with a leader, in a bubble of synctest.
type cluster struct {
	t       *testing.T
	net     *network
	members map[uint64]*member
	rng     *rand.Rand
}

// startCluster starts voters 1 to n and waits until one of them leads.
func startCluster(t *testing.T, seed uint64, n int, conf *raftpb.ConfState,
	edit func(*Config)) *cluster {
	c := &cluster{t: t, net: &network{}, members: map[uint64]*member{},
		rng: rand.New(rand.NewPCG(seed, 2))}
	c.net.mu.rng = rand.New(rand.NewPCG(seed, 1))
	c.net.mu.nodes = map[uint64]*Node{}
	c.net.mu.side = map[uint64]int{}
	c.net.mu.latency = 5
	for id := uint64(1); id <= uint64(n); id++ {
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), func(cfg *Config) {
			cfg.ID, cfg.ConfState, cfg.Transport, cfg.TickInterval = id, conf,
				port{c.net, id}, testTick
			if edit != nil {
				edit(cfg)
			}
		})
		c.members[id] = m
		c.net.mu.Lock()
		c.net.mu.nodes[id] = m.Node
		c.net.mu.Unlock()
	}
	for c.leader() == 0 {
		time.Sleep(testTick)
	}
	return c
}

func voters(ids ...uint64) *raftpb.ConfState { return &raftpb.ConfState{Voters: ids} }

// leader returns the member that all members follow that are not cut off, 0 if there is none.
func (c *cluster) leader() (lead uint64) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for id, m := range c.members {
		if c.net.mu.side[id] != 0 {
			continue
		}
		if st := m.Status(); st.Lead == 0 || lead != 0 && lead != st.Lead {
			return 0
		} else {
			lead = st.Lead
		}
	}
	if c.net.mu.side[lead] != 0 {
		return 0
	}
	return lead
}

// cut cuts a member off, or connects it again.
func (c *cluster) cut(id uint64, cut bool) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.mu.side[id] = 0
	if cut {
		c.net.mu.side[id] = int(id)
	}
}

func (c *cluster) drop(drop func(*raftpb.Message) bool) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.net.mu.drop = drop
}

func (c *cluster) terms() (out []uint64) {
	for id := uint64(1); id <= uint64(len(c.members)); id++ {
		out = append(out, c.members[id].Status().Term)
	}
	return out
}

// kill cuts a member off, and the others see within some time that it is absent.
func (c *cluster) kill(id uint64, within time.Duration) {
	c.cut(id, true)
	for other, m := range c.members {
		if other != id {
			time.AfterFunc(time.Duration(c.rng.Int64N(int64(within)+1)),
				func() { m.ReportAbsent(id, true) })
		}
	}
}

// awaitLeader returns how long it takes until there is a leader.
func (c *cluster) awaitLeader() time.Duration {
	c.t.Helper()
	begun := time.Now()
	for c.leader() == 0 {
		if time.Since(begun) > time.Minute {
			c.t.Fatal("no leader")
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begun)
}

// A leader that is absent for the others is replaced long before the election timeout, in clusters
// of any size, whenever each of the others sees it, and if their disks are slow.
func TestAbsentLeaderIsReplaced(t *testing.T) {
	for _, size := range []int{3, 4, 5, 7} {
		for _, within := range []time.Duration{0, 5 * time.Millisecond, 60 * time.Millisecond} {
			for _, disk := range []time.Duration{0, 20 * time.Millisecond} {
				t.Run(fmt.Sprintf("%d members, seen within %v, disks of %v", size, within, disk),
					func(t *testing.T) {
						var all []time.Duration
						for seed := range uint64(10) {
							synctest.Test(t, func(t *testing.T) {
								ids := []uint64{1, 2, 3, 4, 5, 6, 7}[:size]
								c := startCluster(t, seed, size, voters(ids...),
									func(cfg *Config) { cfg.Log.(*memLog).delay = disk })
								time.Sleep(time.Duration(c.rng.Int64N(int64(testTick))))
								lead := c.leader()
								c.kill(lead, within)
								took := c.awaitLeader()
								all = append(all, took)
								most := testTimeout / 2
								if within < testTimeout/slots {
									// members do not begin at the same moment
									most = testTimeout / 5
								}
								if took > most {
									t.Errorf("seed %d: %v", seed, took)
								}
								n := uint64(0)
								for id, m := range c.members {
									if id != lead {
										n += m.Elections()[CauseAbsent]
									}
								}
								if n == 0 {
									t.Error("no election because of an absent leader is counted")
								}
							})
						}
						t.Log(all)
					})
			}
		}
	}
}

// A member whose log lacks entries is not elected, and does not keep another one from being elected
// early, whichever begins.
func TestAbsentLeaderIsReplacedByTheLongerLog(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			c := startCluster(t, seed, 3, voters(1, 2, 3), nil)
			lead := c.leader()
			short, long := lead%3+1, (lead+1)%3+1
			if seed%2 == 0 {
				short, long = long, short
			}
			c.drop(func(m *raftpb.Message) bool {
				return m.GetTo() == short && m.GetType() == raftpb.MsgApp
			})
			c.members[lead].propose("x")
			for len(c.members[long].applied()) == 0 {
				time.Sleep(time.Millisecond)
			}
			c.kill(lead, 5*time.Millisecond)
			c.drop(nil)
			if took := c.awaitLeader(); took > testTimeout/2 || c.leader() != long {
				t.Errorf("seed %d: %d leads after %v, want %d", seed, c.leader(), took, long)
			}
		})
	}
}

// What fewer members see than a quorum needs, and what they see wrongly, makes no election: terms
// stay, and the leader.
func TestNoElectionWithoutQuorum(t *testing.T) {
	type fault struct {
		name string
		// begin begins the fault, and end ends it.
		begin func(c *cluster, lead, a, b uint64)
		// outcast is set if the first follower is to know no leader during the fault.
		outcast bool
	}
	report := func(c *cluster, who, id uint64,
		absent bool) {
		c.members[who].ReportAbsent(id, absent)
	}
	for _, f := range []fault{
		{"one follower sees it, and hears the leader", func(c *cluster, lead, a, b uint64) {
			report(c, a, lead, true) // the transport does not do so
			time.Sleep(3 * testTimeout)
			report(c, a, lead, false)
		}, false},
		{"one follower sees it, and is cut off from the leader",
			func(c *cluster, lead, a, b uint64) {
				c.drop(func(m *raftpb.Message) bool {
					return m.GetFrom() == a && m.GetTo() == lead ||
						m.GetFrom() == lead && m.GetTo() == a
				})
				report(c, a, lead, true)
			}, true},
		{"one follower sees it, and what the leader sends is lost",
			func(c *cluster, lead, a, b uint64) {
				c.drop(func(m *raftpb.Message) bool {
					return m.GetFrom() == lead &&
						m.GetTo() == a
				})
				report(c, a, lead, true)
			}, true},
		{"the leader sees all others absent", func(c *cluster, lead, a, b uint64) {
			report(c, lead, a, true)
			report(c, lead, b, true)
		}, false},
		{"followers see each other absent", func(c *cluster, lead, a, b uint64) {
			report(c, a, b, true)
			report(c, b, a, true)
		}, false},
		{"it comes back before it was silent for long", func(c *cluster, lead, a, b uint64) {
			time.Sleep(testTick / 4)
			for _, id := range []uint64{a, b} {
				m := c.members[id]
				for time.Since(heardAt(m)) > QuietTime(testTick)/4 {
					time.Sleep(time.Millisecond)
				}
				m.ReportAbsent(lead, true)
				time.Sleep(QuietTime(testTick) / 2)
				m.ReportAbsent(lead, false)
			}
		}, false},
	} {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(10) {
				synctest.Test(t, func(t *testing.T) {
					c := startCluster(t, seed, 3, voters(1, 2, 3), nil)
					lead, before := c.leader(), c.terms()
					a, b := lead%3+1, (lead+1)%3+1
					f.begin(c, lead, a, b)
					time.Sleep(3 * testTimeout)
					if st := c.members[a].Status(); (st.Lead == 0) != f.outcast {
						t.Errorf("seed %d: the first follower: %+v", seed, st)
					}
					if st := c.members[b].Status(); st.Lead != lead {
						t.Errorf("seed %d: the other follower: %+v", seed, st)
					}
					c.drop(nil)
					report(c, a, lead, false)
					time.Sleep(3 * testTick)
					if now := c.terms(); c.leader() != lead ||
						fmt.Sprint(now) != fmt.Sprint(before) {
						t.Errorf("seed %d: %d leads, terms %v, before %d and %v", seed, c.leader(),
							now, lead, before)
					}
				})
			}
		})
	}
}

// heardAt returns when a member heard of its leader.
func heardAt(m *member) (at time.Time) {
	_ = m.runInTurn(func(c *core) { at = c.early.heard })
	return at
}

// A leader is forgotten when it has been silent for QuietTime, and not before: a lessor relies on
// it.
func TestAbsentLeaderIsForgottenAfterQuietTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, 3, voters(1, 2, 3), nil)
		lead := c.leader()
		m := c.members[lead%3+1]
		for before := heardAt(m); heardAt(m) == before; {
			time.Sleep(time.Microsecond)
		}
		c.cut(lead, true)
		m.ReportAbsent(lead, true)
		time.Sleep(time.Until(heardAt(m).Add(QuietTime(testTick) - time.Millisecond)))
		if st := m.Status(); st.Lead != lead {
			t.Errorf("forgotten %v after it was heard of: %+v", time.Since(heardAt(m)), st)
		}
		time.Sleep(2 * time.Millisecond)
		if st := m.Status(); st.Lead != 0 {
			t.Errorf("not forgotten %v after it was heard of: %+v", time.Since(heardAt(m)), st)
		}
	})
}

// Without pre-votes the members wait for the election timeout: an election that is lost would end
// the term of a leader that works.
func TestNoEarlyElectionWithoutPreVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, 3, voters(1, 2, 3), func(cfg *Config) { cfg.NoPreVote = true })
		c.kill(c.leader(), 0)
		if took := c.awaitLeader(); took < testTimeout*8/10 {
			t.Errorf("elected after %v", took)
		}
	})
}

// A learner forgets an absent leader, and begins no election.
func TestLearnerBeginsNoEarlyElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, 4,
			&raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}, nil)
		c.kill(c.leader(), 0)
		if took := c.awaitLeader(); took > testTimeout/2 {
			t.Errorf("elected after %v", took)
		}
		if n := c.members[4].Elections(); n[CauseAbsent]+n[CauseTimeout] > 0 {
			t.Errorf("elections of the learner: %v", n)
		}
	})
}

// A member that starts votes for nobody before QuietTime: it may have answered a leader just
// before, and forgotten that.
func TestMemberThatStartsIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered := make(chan time.Time, 1)
		begun := time.Now()
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), func(cfg *Config) {
			cfg.ConfState, cfg.TickInterval = voters(1, 2, 3), testTick
			cfg.Transport = sender(func(msgs []*raftpb.Message) {
				for _, m := range msgs {
					if m.GetType() == raftpb.MsgPreVoteResp && !m.GetReject() {
						answered <- time.Now()
					}
				}
			})
		})
		m.Step(&raftpb.Message{Type: raftpb.MsgPreVote.Enum(), From: new(uint64(2)),
			To: new(uint64(1)), Term: new(uint64(2)),
			LogTerm: new(uint64(1)), Index: new(uint64(1))})
		if took := (<-answered).Sub(begun); took < QuietTime(testTick) {
			t.Errorf("a pre-vote was answered after %v", took)
		}
	})
}

// sender is a Transport.
type sender func(msgs []*raftpb.Message)

func (s sender) Send(msgs []*raftpb.Message) { s(msgs) }

func (s sender) ConnectedSince(uint64) time.Time { return time.Unix(1, 0) }

// A leader that has asked another member to take over knows that it may be replaced, as long as its
// term lasts: that member may get the request late.
func TestLeaderKnowsThatItHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, 3, voters(1, 2, 3), nil)
		lead := c.members[c.leader()]
		term := lead.LeadTerm()
		if lead.Status().HandedOver == term {
			t.Error("handed over without a request")
		}
		c.drop(func(m *raftpb.Message) bool { return m.GetType() == raftpb.MsgTimeoutNow })
		if to, err := lead.TransferLeader(0); to == 0 || err != nil {
			t.Fatal(to, err)
		}
		time.Sleep(3 * testTimeout)
		if now := lead.LeadTerm(); now != term || lead.Status().HandedOver != term {
			t.Errorf("term %d, now %d, handed over in %d", term, now, lead.Status().HandedOver)
		}
	})
}

// Members in both halves of a joint configuration have one turn each.
func TestTurns(t *testing.T) {
	c := &core{storage: &storage{conf: voters(1, 2, 3)}}
	c.init(&Config{ID: 3, ElectionTicks: DefaultElectionTicks, TickInterval: testTick,
		Proposals: &source{}})
	once := c.firstElectionDelay(4)
	c.storage.conf = &raftpb.ConfState{Voters: []uint64{1, 2, 3},
		VotersOutgoing: []uint64{1, 2, 3, 4}}
	if both := c.firstElectionDelay(4); both != once {
		t.Errorf("turn after %v, in a joint configuration after %v", once, both)
	}
}

// A member that is back while another one is elected does not put that off, unless it is the leader
// that was lost.
func TestAnotherMemberThatIsBackDoesNotDelay(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			c := startCluster(t, seed, 5, voters(1, 2, 3, 4, 5), nil)
			lead := c.leader()
			other := lead%5 + 1
			c.cut(other, true)
			for id, m := range c.members {
				if id != other {
					m.ReportAbsent(other, true)
				}
			}
			time.Sleep(testTick)
			c.kill(lead, 0)
			begun, back := time.Now(), false
			for c.leader() == 0 && time.Since(begun) < testTimeout/2 {
				back = !back
				for id, m := range c.members {
					if id != other && id != lead {
						m.ReportAbsent(other, back)
					}
				}
				time.Sleep(testTick / 10)
			}
			if c.leader() == 0 {
				t.Errorf("seed %d: no leader after %v", seed, time.Since(begun))
			}
		})
	}
}

// Where disks are slow, an election before the election timeout does not take longer than one after
// it: the members let it end. A vote is synced before it is sent, so it takes two syncs.
func TestEarlyElectionsOnSlowDisks(t *testing.T) {
	const seeds = 12
	ms := time.Millisecond
	for _, disks := range [][]time.Duration{
		{250 * ms, 250 * ms, 250 * ms}, {500 * ms, 500 * ms, 500 * ms},
		{900 * ms, 900 * ms, 900 * ms}, {0, 250 * ms, 250 * ms},
		{0, 0, 500 * ms}, {100 * ms, 250 * ms, 500 * ms},
		{250 * ms, 250 * ms, 250 * ms, 250 * ms, 250 * ms}, {0, 0, 250 * ms, 500 * ms, 500 * ms},
	} {
		t.Run(fmt.Sprint(disks), func(t *testing.T) {
			var sum [2]time.Duration
			var longest [2]time.Duration
			for early := range sum {
				for seed := range uint64(seeds) {
					synctest.Test(t, func(t *testing.T) {
						ids := []uint64{1, 2, 3, 4, 5}[:len(disks)]
						c := startCluster(t, seed, len(disks), voters(ids...), func(cfg *Config) {
							// Ids and disks are not always in the same order.
							cfg.Log.(*memLog).delay = disks[(cfg.ID+seed)%uint64(len(disks))]
						})
						time.Sleep(5*time.Second + time.Duration(c.rng.Int64N(int64(testTick))))
						if early == 1 {
							c.kill(c.leader(), 5*ms)
						} else {
							c.cut(c.leader(), true)
						}
						took := c.awaitLeader()
						sum[early] += took
						longest[early] = max(longest[early], took)
					})
				}
			}
			t.Logf("early %v, at most %v; otherwise %v, at most %v", sum[1]/seeds, longest[1],
				sum[0]/seeds, longest[0])
			if sum[1] >= sum[0] || longest[1] > longest[0] {
				t.Errorf("early elections take %v, at most %v; without them %v, at most %v",
					sum[1]/seeds, longest[1], sum[0]/seeds, longest[0])
			}
		})
	}
}
