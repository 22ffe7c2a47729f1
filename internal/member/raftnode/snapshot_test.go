package raftnode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/member/stage"
	"vigil/internal/store/wal"
)

// courier is a Snapshots that brings the state of a member to others, late, or loses it.
type courier struct {
	net  *network
	from *member
	id   uint64
	sent *int
}

func (c *courier) Position() uint64 { return c.from.index() }

func (c *courier) Send(m *raftpb.Message) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	*c.sent++
	delay := time.Duration(c.net.mu.rng.IntN(400)) * time.Millisecond
	time.AfterFunc(delay, func() { c.from.ReportSnapshot(m.GetTo(), c.carry(m)) })
}

func (c *courier) carry(m *raftpb.Message) bool {
	c.net.mu.Lock()
	to := c.net.mu.members[m.GetTo()]
	lost := c.net.mu.side[c.id] != c.net.mu.side[m.GetTo()] ||
		c.net.mu.rng.Float64() < c.net.mu.loss
	c.net.mu.Unlock()
	if lost {
		return false
	}
	c.from.mu.Lock()
	state, index := slices.Clone(c.from.mu.applied), c.from.mu.index
	c.from.mu.Unlock()
	term, err := c.from.log.Term(index)
	if err != nil || index < m.GetSnapshot().GetMetadata().GetIndex() {
		panic(fmt.Sprintf("state at %d for a snapshot at %d: %v", index,
			m.GetSnapshot().GetMetadata().GetIndex(), err))
	}
	to.mu.Lock()
	to.mu.aside = state
	to.mu.Unlock()
	_, err = to.InstallSnapshot(&raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), To: m.To, From: m.From, Term: m.Term,
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: &index, Term: &term, ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}},
	})
	return err == nil
}

// Three members whose logs are truncated after the entries that they have applied; one after the
// other is cut off for longer than the logs reach and comes back. Snapshots bring it up: all
// members apply the same sequence in the end, and none applies anything out of order (member.apply
// would panic).
func TestSnapshotsBringLaggingMembersUp(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 5))
		net := &network{}
		net.mu.rng = rand.New(rand.NewPCG(seed, 6))
		net.mu.nodes = map[uint64]*Node{}
		net.mu.members = map[uint64]*member{}
		net.mu.side = map[uint64]int{}
		sent := 0
		var members []*member
		for id := uint64(1); id <= 3; id++ {
			post := &courier{net: net, id: id, sent: &sent}
			net.mu.Lock()
			log := newMemLog(wal.Start{Index: 1, Term: 1})
			log.uncached = rng.IntN(2) == 0
			m := startMember(t, log, func(c *Config) {
				c.ID = id
				c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
				c.Transport = port{net, id}
				c.Snapshots = post
				c.MaxInFlight = 4
			})
			post.from = m
			members = append(members, m)
			net.mu.nodes[id], net.mu.members[id] = m.Node, m
			net.mu.Unlock()
		}
		proposed := 0
		for step := range 40 {
			net.mu.Lock()
			net.mu.loss = []float64{0, 0, 0.1, 0.3}[rng.IntN(4)]
			clear(net.mu.side)
			if rng.IntN(3) > 0 {
				net.mu.side[1+rng.Uint64N(3)] = 1
			}
			net.mu.Unlock()
			for range 10 + rng.IntN(20) {
				members[rng.IntN(3)].propose(fmt.Sprintf("%d/%d", step, proposed))
				proposed++
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			}
			for _, m := range members {
				if i := m.index(); rng.IntN(2) == 0 && i > 5 {
					m.log.truncate(i - rng.Uint64N(5))
				}
			}
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		}
		net.mu.Lock()
		net.mu.loss = 0
		clear(net.mu.side)
		net.mu.Unlock()
		time.Sleep(30 * time.Second)
		synctest.Wait()

		want, installs := members[0].applied(), 0
		for i, m := range members {
			if got := m.applied(); !slices.Equal(got, want) {
				t.Errorf("member %d applied %d entries, member 1 %d, or others", i+1,
					len(got), len(want))
			}
			m.mu.Lock()
			installs += m.mu.installs
			m.mu.Unlock()
		}
		unique := slices.Clone(want)
		slices.Sort(unique)
		if n := len(slices.Compact(unique)); n != len(want) {
			t.Errorf("%d of %d entries were applied twice", len(want)-n, len(want))
		}
		if installs == 0 || len(want) < proposed/4 {
			t.Errorf("%d snapshots installed, %d of %d proposals applied", installs,
				len(want), proposed)
		}
		t.Logf("%d snapshots sent, %d installed, %d of %d proposals applied", sent, installs,
			len(want), proposed)
	})
}

// recorder is a Machine that notes what it is given after it is released, and acknowledges nothing.
type recorder struct {
	release chan struct{}
	got     []string
}

func (r *recorder) Apply(run []*raftpb.Message, _ bool) error {
	<-r.release
	for _, m := range run {
		if s := m.GetSnapshot(); s != nil {
			r.got = append(r.got, fmt.Sprint("snapshot ", s.GetMetadata().GetIndex()))
		}
		for _, e := range m.GetEntries() {
			r.got = append(r.got, string(e.GetData()))
		}
	}
	return nil
}

// Entries that are queued to be applied when a snapshot is accepted are applied before it.
func TestEntriesFromBeforeASnapshotAreAppliedBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		line, machine := stage.NewLine(), &recorder{release: make(chan struct{})}
		n, err := New(Config{ID: 1, Log: log,
			ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}}, Applied: 1,
			Ticks: make(chan time.Time), Line: line, Proposals: &source{}, Machine: machine})
		if err != nil {
			t.Fatal(err)
		}
		line.Start()
		defer line.Close()
		n.Start()
		defer n.Stop()
		message := func(typ raftpb.MessageType) *raftpb.Message {
			return &raftpb.Message{Type: &typ, From: new(uint64(2)), To: new(uint64(1)),
				Term: new(uint64(2))}
		}
		app := message(raftpb.MsgApp)
		app.Index, app.LogTerm, app.Commit = new(uint64(1)), new(uint64(1)), new(uint64(2))
		app.Entries = []*raftpb.Entry{{Index: new(uint64(2)), Term: new(uint64(2)),
			Data: []byte("a")}}
		n.Step(app)
		synctest.Wait() // the entry waits to be applied
		snap := func(index uint64) *raftpb.Message {
			m := message(raftpb.MsgSnap)
			m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index,
				Term:      new(uint64(2)),
				ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}}}}
			return m
		}
		if accepted, err := n.InstallSnapshot(snap(2)); accepted || err != nil {
			t.Errorf("a snapshot of what is there: %v, %v", accepted, err)
		}
		if accepted, err := n.InstallSnapshot(snap(10)); !accepted || err != nil {
			t.Fatalf("a snapshot ahead: %v, %v", accepted, err)
		}
		synctest.Wait()
		if first, _ := log.FirstIndex(); first != 11 {
			t.Errorf("the log begins at %d", first)
		}
		app = message(raftpb.MsgApp)
		app.Index, app.LogTerm, app.Commit = new(uint64(10)), new(uint64(2)), new(uint64(11))
		app.Entries = []*raftpb.Entry{{Index: new(uint64(11)), Term: new(uint64(2)),
			Data: []byte("b")}}
		n.Step(app)
		synctest.Wait()
		close(machine.release)
		synctest.Wait()
		got := machine.got
		if want := []string{"a", "snapshot 10", "b"}; !slices.Equal(got, want) {
			t.Errorf("handed out %q, want %q", got, want)
		}
		n.Step(snap(20)) // one without its state, which no member has sent
		synctest.Wait()
		if first, _ := log.FirstIndex(); first != 11 {
			t.Errorf("a snapshot from the network was taken: the log begins at %d", first)
		}
		if _, err := n.InstallSnapshot(message(raftpb.MsgApp)); err == nil {
			t.Error("a MsgApp was taken for a snapshot")
		}
	})
}

// A configuration change that was handed out before a snapshot was accepted does not change the
// snapshot's configuration.
func TestAConfChangeFromBeforeASnapshotLeavesItsConfigurationAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), func(c *Config) {
			c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2, 3, 4}}
		})
		release := m.holdApplying()
		change, err := proto.Marshal(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
			Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(4))}}})
		if err != nil {
			t.Fatal(err)
		}
		m.Step(&raftpb.Message{Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)),
			Term:  new(uint64(2)),
			Index: new(uint64(1)), LogTerm: new(uint64(1)), Commit: new(uint64(2)),
			Entries: []*raftpb.Entry{{Type: raftpb.EntryConfChangeV2.Enum(), Index: new(uint64(2)),
				Term: new(uint64(2)), Data: change}}})
		synctest.Wait() // the entry waits to be applied
		want := []uint64{1, 2, 3, 4, 5}
		accepted, err := m.InstallSnapshot(&raftpb.Message{Type: raftpb.MsgSnap.Enum(),
			From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(2)),
			Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(10)),
				Term:      new(uint64(2)),
				ConfState: &raftpb.ConfState{Voters: want}}}})
		if err != nil || !accepted {
			t.Fatalf("accepted %v, %v", accepted, err)
		}
		release()
		synctest.Wait()
		if got := m.conf().GetVoters(); !slices.Equal(got, want) || m.index() != 10 {
			t.Errorf("voters %d at index %d, want %d at 10", got, m.index(), want)
		}
	})
}
