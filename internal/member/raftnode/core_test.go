package raftnode

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/store/wal"
)

// testCore returns a core on a log in memory.
func testCore(t *testing.T, voters ...uint64) (*core, *memLog) {
	t.Helper()
	log := newMemLog(wal.Start{Index: 1, Term: 1})
	cfg := Config{ID: 1, Log: log, Applied: 1, ConfState: &raftpb.ConfState{Voters: voters},
		Logger: slog.New(slog.DiscardHandler)}
	cfg.setDefaults()
	n := &Node{cfg: cfg}
	n.cfg.Proposals = &source{}
	n.fetcher.init(&n.cfg)
	c := &n.core
	c.init(&n.cfg)
	c.storage = &storage{log: log,
		hard: &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(1))}, conf: cfg.ConfState,
		fetcher: &n.fetcher}
	c.last, c.term, c.committed = 1, 1, 1
	c.setConfState(cfg.ConfState)
	if err := n.newRawNode(); err != nil {
		t.Fatal(err)
	}
	return c, log
}

// TestStep: a core takes inputs and gives outputs, and needs nobody to carry them out.
func TestStep(t *testing.T) {
	c, log := testCore(t, 1)
	in := input{now: time.Unix(100, 0)}
	// write writes what the core wants written and returns the responses, and the data to apply.
	write := func() (responses []*raftpb.Message, applied []string) {
		for c.collectReady() {
		}
		for _, m := range c.out.appends {
			if e := m.GetEntries(); len(e) > 0 {
				if err := log.Append(wal.Batch{Entries: e, Sync: true}); err != nil {
					t.Fatal(err)
				}
			}
			responses = append(responses, m.GetResponses()...)
		}
		for _, m := range c.out.applies {
			for _, e := range m.GetEntries() {
				applied = append(applied, string(e.GetData()))
			}
			responses = append(responses, m.GetResponses()...)
		}
		c.out.reset()
		return responses, applied
	}
	in.begin = true
	c.step(&in)
	in.begin = false
	var applied []string
	for range 10 {
		in.messages, _ = write()
		c.step(&in)
	}
	st := c.status()
	if st.Lead != 1 || !st.alone || !st.LeadSince.Equal(in.now) || st.Committed != 2 ||
		st.acknowledged != 2 {
		t.Fatalf("status %+v", st)
	}
	if may, ifRoom := c.mayPropose(); !may || ifRoom {
		t.Fatal("a leader without work may not propose")
	}
	for _, data := range []string{"a", "b"} {
		if what := c.propose([]byte(data)); what != proposed {
			t.Fatalf("the proposal is %v", what)
		}
	}
	if may, _ := c.mayPropose(); may {
		t.Error("there is room for a third proposal")
	}
	for range 10 {
		var got []string
		in.messages, got = write()
		applied = append(applied, got...)
		c.step(&in)
	}
	if !slices.Equal(applied, []string{"a", "b"}) || c.status().Committed != 4 {
		t.Errorf("applied %q, status %+v", applied, c.status())
	}
}

// TestStepAsksForVotes: a voter that hears of no leader asks for votes after an election timeout of
// ticks.
func TestStepAsksForVotes(t *testing.T) {
	c, _ := testCore(t, 1, 2, 3)
	in := input{now: time.Unix(100, 0), begin: true}
	c.step(&in)
	in.begin, in.tick = false, true
	for ticks := 1; ; ticks++ {
		in.now = in.now.Add(100 * time.Millisecond)
		c.step(&in)
		for c.collectReady() {
		}
		if len(c.out.messages) > 0 {
			if ticks < DefaultElectionTicks || c.status().elections[CauseTimeout] != 1 {
				t.Errorf("after %d ticks, %+v", ticks, c.status())
			}
			break
		}
		if ticks > 2*DefaultElectionTicks {
			t.Fatal("no messages")
		}
		c.out.reset()
	}
	for _, m := range c.out.messages {
		if m.GetType() != raftpb.MsgPreVote {
			t.Errorf("message %v", m)
		}
	}
}
