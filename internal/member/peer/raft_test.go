package peer

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/member/raftnode"
	"vigil/internal/member/stage"
	"vigil/internal/store/wal"
	"vigil/internal/vfs/memfs"
)

// proposals hands out what tests propose.
type proposals struct {
	mu      sync.Mutex
	waiting [][]byte
	refused []uint64 // numbers
}

func (p *proposals) NextGroup(uint64) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		return nil
	}
	next := p.waiting[0]
	p.waiting = p.waiting[1:]
	return next
}

func (p *proposals) Outstanding(uint64) int { return 0 }
func (p *proposals) FailOffered()           {}

func (p *proposals) StampGroup(uint64, []byte) {}

func (p *proposals) FailRefused(head []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = append(p.refused, binary.BigEndian.Uint64(head))
}

// replicaOf is a node with its log, on a transport.
type replicaOf struct {
	*member
	node  *raftnode.Node
	props proposals
	mu    sync.Mutex
	seen  []uint64 // numbers of the proposals applied, in order
}

// node takes what the transport receives. Raft recovers from a loss that is not reported, too.
type nodeReceiver struct{ *raftnode.Node }

func (nodeReceiver) ReportUnreachable(uint64)  {}
func (nodeReceiver) ReportAbsent(uint64, bool) {}

func startReplica(t *testing.T, m *member) *replicaOf {
	t.Helper()
	start := wal.Start{Index: 1, Term: 1}
	log, err := wal.Create(wal.Options{FS: memfs.New(), Dir: "/wal",
		ID: wal.Identity{ClusterID: testCluster, MemberID: m.id}, SegmentBytes: 1 << 20}, start)
	if err != nil {
		t.Fatal(err)
	}
	r, line := &replicaOf{member: m}, stage.NewLine()
	tick := time.NewTicker(20 * time.Millisecond)
	r.node, err = raftnode.New(raftnode.Config{ID: m.id, Log: log,
		ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}},
		Applied:   1, Ticks: tick.C, Line: line, Proposals: &r.props, Machine: r,
		Transport: m.Transport, MaxInFlight: 8,
		MaxMessage:     64 << 10,
		MaxUncommitted: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	line.Start()
	r.node.Start()
	if err := m.Start(Receivers{Raft: nodeReceiver{r.node}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.node.Stop()
		line.Close()
		m.Close()
		log.Close()
		tick.Stop()
		if err := r.node.Err(); err != nil {
			t.Errorf("member %d: %v", m.id, err)
		}
	})
	return r
}

// Apply implements raftnode.Machine.
func (r *replicaOf) Apply(run []*raftpb.Message, _ bool) error {
	r.mu.Lock()
	for _, m := range run {
		for _, e := range m.GetEntries() {
			if len(e.GetData()) >= 8 {
				r.seen = append(r.seen, binary.BigEndian.Uint64(e.GetData()))
			}
		}
	}
	r.mu.Unlock()
	r.node.Applied(run)
	return nil
}

func (r *replicaOf) applied() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

func (r *replicaOf) propose(n uint64, size int) {
	b := make([]byte, 8+size)
	binary.BigEndian.PutUint64(b, n)
	r.props.mu.Lock()
	r.props.waiting = append(r.props.waiting, b)
	r.props.mu.Unlock()
	r.node.Wake()
}

// Three members with real logs over real connections, each through a proxy that resets, delays and
// swallows. Whatever is committed is applied by all in the same order and once, and when the faults
// are over all catch up. What a leader has refused is never applied.
func TestRaftOverFaultyConnections(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var members []*member
	for id := uint64(1); id <= 3; id++ {
		members = append(members,
			newMember(t, id, func(o *Options) {
				o.DeadAfter, o.HandshakeTimeout = 2*time.Second,
					time.Second
			}))
	}
	var proxies []*proxy
	for _, a := range members {
		var known []Member
		for _, b := range members {
			if a != b {
				p := newProxy(t, b.url)
				proxies = append(proxies, p)
				known = append(known, Member{b.id, []string{p.url}})
			}
		}
		a.SetMembers(1, known, nil)
	}
	var all []*replicaOf
	for _, m := range members {
		all = append(all, startReplica(t, m))
	}
	top := func() (n int) {
		for _, r := range all {
			n = max(n, len(r.applied()))
		}
		return n
	}
	number := uint64(0)
	// push proposes until more is applied somewhere: what one member drops another one may take. It
	// proposes ever less often, as a client does: what is not committed yet must reach a quorum
	// first.
	push := func(what string) {
		want := top() + 3
		next, pause := time.Now(), 50*time.Millisecond
		until(t, what, func() bool {
			if now := time.Now(); now.After(next) {
				next, pause = now.Add(pause), min(2*pause, 4*time.Second)
				for _, r := range all {
					number++
					r.propose(number, rng.IntN(2000))
				}
				number++
				all[rng.IntN(3)].propose(number, 200_000)
			}
			return top() >= want
		})
	}
	push("the first proposals are applied")
	for range 12 {
		p := proxies[rng.IntN(len(proxies))]
		switch rng.IntN(4) {
		case 0:
			p.reset()
		case 1:
			p.delay.Store(int64(time.Duration(rng.IntN(10)) * time.Millisecond))
		case 2:
			p.dropUp.Store(true)
		case 3:
			p.dropDown.Store(true)
		}
		push("more is applied while one path is bad")
		p.delay.Store(0)
		p.dropAll(false)
	}
	push("more is applied in the end")
	until(t, "all have applied the same", func() bool {
		a, b, c := all[0].applied(), all[1].applied(), all[2].applied()
		return len(a) == len(b) && len(b) == len(c) && len(a) == top()
	})
	want := all[0].applied()
	for _, r := range all[1:] {
		if got := r.applied(); !slices.Equal(got[:min(len(got), len(want))],
			want[:min(len(got), len(want))]) {
			t.Errorf("member %d applied others, or in another order, than member 1", r.id)
		}
	}
	once := slices.Clone(want)
	slices.Sort(once)
	if n := len(slices.Compact(once)); n != len(want) {
		t.Errorf("%d of %d were applied more than once", len(want)-n, len(want))
	}
	refused := 0
	for _, r := range all {
		r.props.mu.Lock()
		for _, n := range r.props.refused {
			if refused++; slices.Contains(want, n) {
				t.Errorf("proposal %d was refused and applied", n)
			}
		}
		r.props.mu.Unlock()
	}
	t.Logf("%d proposed, %d applied, %d refused", number, len(want), refused)
}
