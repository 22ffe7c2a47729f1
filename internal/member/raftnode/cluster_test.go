package raftnode

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/store/wal"
)

func unmarshal(b []byte, m proto.Message) error { return proto.Unmarshal(b, m) }

// network delivers messages between nodes late, not at all, or not across a partition.
type network struct {
	mu struct {
		sync.Mutex
		rng   *rand.Rand
		nodes map[uint64]*Node
		// members are those that snapshots are brought to.
		members map[uint64]*member
		side    map[uint64]int
		loss    float64
		// latency is the longest delay of a message in milliseconds, if it is not 40; drop drops a
		// message.
		latency int
		drop    func(*raftpb.Message) bool
	}
}

type port struct {
	net  *network
	from uint64
}

func (p port) Send(msgs []*raftpb.Message) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	for _, m := range msgs {
		to := p.net.mu.nodes[m.GetTo()]
		if to == nil || p.net.mu.side[p.from] != p.net.mu.side[m.GetTo()] ||
			p.net.mu.rng.Float64() < p.net.mu.loss {
			continue
		}
		if p.net.mu.drop != nil && p.net.mu.drop(m) {
			continue
		}
		delay := time.Duration(p.net.mu.rng.IntN(cmp.Or(p.net.mu.latency, 40))) * time.Millisecond
		m = proto.Clone(m).(*raftpb.Message)
		time.AfterFunc(delay, func() { to.Step(m) })
	}
}

// ConnectedSince implements Transport: streams end with a partition.
func (p port) ConnectedSince(id uint64) time.Time {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.net.mu.nodes[id] == nil || p.net.mu.side[p.from] != p.net.mu.side[id] {
		return time.Time{}
	}
	return time.Unix(1, 0)
}

// Three members, a network that loses, delays and splits. Every member applies the same sequence,
// no proposal is applied twice, and a read index is never below what had been applied anywhere
// when it was asked for.
func TestClusterAgreesAndReadsAreFresh(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 3))
		net := &network{}
		net.mu.rng = rand.New(rand.NewPCG(seed, 4))
		net.mu.nodes = map[uint64]*Node{}
		net.mu.side = map[uint64]int{}
		var members []*member
		for id := uint64(1); id <= 3; id++ {
			log := newMemLog(wal.Start{Index: 1, Term: 1})
			log.uncached = rng.IntN(2) == 0
			m := startMember(t, log, func(c *Config) {
				c.ID = id
				c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
				c.Transport = port{net, id}
				c.MaxInFlight = 8
				c.TickInterval = 100 * time.Millisecond
			})
			members = append(members, m)
			net.mu.Lock()
			net.mu.nodes[id] = m.Node
			net.mu.Unlock()
		}
		newest := func() (top uint64) {
			for _, m := range members {
				top = max(top, m.index())
			}
			return top
		}

		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var reads, stale int
		var readMu sync.Mutex
		for _, m := range members {
			wg.Go(func() {
				for ctx.Err() == nil {
					floor := newest()
					i, err := m.ReadIndex(ctx)
					if err != nil {
						return
					}
					readMu.Lock()
					reads++
					if i < floor {
						stale++
					}
					readMu.Unlock()
					time.Sleep(7 * time.Millisecond) // fake time: the pace of this reader
				}
			})
		}
		proposed := 0
		for step := range 60 {
			net.mu.Lock()
			net.mu.loss = []float64{0, 0, 0.1, 0.3}[rng.IntN(4)]
			for id := range net.mu.nodes {
				net.mu.side[id] = 0
			}
			if rng.IntN(3) == 0 {
				net.mu.side[1+rng.Uint64N(3)] = 1
			}
			net.mu.Unlock()
			// Members may take each other for absent, whether they are or not: it must not matter
			// for what is committed.
			for range rng.IntN(6) {
				members[rng.IntN(3)].ReportAbsent(1+rng.Uint64N(3), rng.IntN(2) == 0)
			}
			for range rng.IntN(20) {
				members[rng.IntN(3)].propose(fmt.Sprintf("%d/%d", step, proposed))
				proposed++
			}
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		}
		net.mu.Lock()
		net.mu.loss = 0
		clear(net.mu.side)
		net.mu.Unlock()
		for _, m := range members {
			for id := uint64(1); id <= 3; id++ {
				m.ReportAbsent(id, false)
			}
		}
		time.Sleep(20 * time.Second)
		cancel()
		wg.Wait()
		synctest.Wait()

		want := members[0].applied()
		for i, m := range members[1:] {
			if got := m.applied(); !slices.Equal(got, want) {
				t.Errorf("member %d applied %d entries, member 1 %d, or others", i+2,
					len(got), len(want))
			}
		}
		unique := slices.Clone(want)
		slices.Sort(unique)
		if n := len(slices.Compact(unique)); n != len(want) {
			t.Errorf("%d of %d entries were applied twice", len(want)-n, len(want))
		}
		if stale > 0 || reads < 100 || len(want) < proposed/4 {
			t.Errorf("%d stale reads of %d; %d of %d proposals applied", stale, reads,
				len(want), proposed)
		}
		t.Logf("%d reads, %d of %d proposals applied", reads, len(want), proposed)
	})
}
