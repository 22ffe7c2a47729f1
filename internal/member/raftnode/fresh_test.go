package raftnode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/store/wal"
)

// sent is a Transport that keeps what is sent.
type sent struct {
	mu   sync.Mutex
	msgs []*raftpb.Message
}

func (s *sent) Send(msgs []*raftpb.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.msgs = append(s.msgs, msgs...)
}

func (s *sent) ConnectedSince(uint64) time.Time { return time.Unix(1, 0) }

func (s *sent) take() []*raftpb.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.msgs
	s.msgs = nil
	return out
}

func (s *sent) of(t raftpb.MessageType) (out []*raftpb.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.msgs {
		if m.GetType() == t {
			out = append(out, m)
		}
	}
	return out
}

// A restarted single voter does not know how much it had committed before, and reports no commit
// index.
func TestARestartedSingleVoterAnswersNoReadIndexTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		for i := range uint64(5) {
			log.mu.ents = append(log.mu.ents,
				&raftpb.Entry{Index: new(2 + i), Term: new(uint64(2)), Data: []byte("x")})
		}
		log.mu.hard = &raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(1)),
			Commit: new(uint64(1))}
		log.gate = make(chan struct{})
		out := &sent{}
		m := startMember(t, log, func(c *Config) {
			c.ConfState = &raftpb.ConfState{Voters: []uint64{1}, Learners: []uint64{2}}
			c.Transport = out
		})
		// Each write lets it go on by a step: it votes for itself, leads, and commits its first
		// entry.
		for range 10 {
			m.Step(&raftpb.Message{Type: raftpb.MsgReadIndex.Enum(), From: new(uint64(2)),
				To:      new(uint64(1)),
				Entries: []*raftpb.Entry{{Data: []byte("12345678")}}})
			synctest.Wait()
			select {
			case log.gate <- struct{}{}:
			default:
			}
			synctest.Wait()
		}
		answers := out.of(raftpb.MsgReadIndexResp)
		for _, a := range answers {
			if a.GetIndex() < 6 {
				t.Errorf("a read index of %d, and 6 is committed", a.GetIndex())
			}
		}
		if len(answers) == 0 {
			t.Error("no answer after the first commit of its term")
		}
		close(log.gate)
	})
}

// The leader of two voters is removed, the network loses messages, and the voter that is left is
// started again: a read index is never below what had been applied anywhere when it was asked for,
// and in the end there is one everywhere but at the member that was removed.
func TestReadsAreFreshAfterTheLeaderWasRemoved(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 5
	}
	base := uint64(time.Now().UnixNano())
	for seed := base; seed < base+seeds; seed++ {
		synctest.Test(t, func(t *testing.T) { removeLeader(t, seed) })
	}
}

func removeLeader(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	net := &network{}
	net.mu.rng = rand.New(rand.NewPCG(seed, 8))
	net.mu.nodes = map[uint64]*Node{}
	net.mu.side = map[uint64]int{}
	var mu sync.Mutex
	members := map[uint64]*member{}
	newest := uint64(0)
	start := func(id uint64, log *memLog, conf *raftpb.ConfState) {
		m := startMember(t, log, func(c *Config) {
			c.ID, c.ConfState = id, conf
			c.Transport = port{net, id}
		})
		mu.Lock()
		members[id] = m
		mu.Unlock()
		net.mu.Lock()
		net.mu.nodes[id] = m.Node
		net.mu.Unlock()
	}
	get := func(id uint64) *member {
		mu.Lock()
		defer mu.Unlock()
		return members[id]
	}
	top := func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range members {
			newest = max(newest, m.index())
		}
		return newest
	}
	conf := &raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{3}}
	for id := uint64(1); id <= 3; id++ {
		start(id, newMemLog(wal.Start{Index: 1, Term: 1}), conf)
	}
	leader := func() uint64 {
		for range 10000 {
			for id := uint64(1); id <= 2; id++ {
				if get(id).Status().Lead == id {
					return id
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		for id := uint64(1); id <= 3; id++ {
			_ = get(id).runInTurn(func(c *core) {
				last, _ := get(id).log.LastIndex()
				t.Logf("member %d: %+v, log to %d, configuration %v", id, c.node.BasicStatus(),
					last, c.storage.conf)
			})
		}
		t.Fatalf("seed %d: no leader", seed)
		return 0
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var fresh [4]int
	for id := uint64(1); id <= 3; id++ {
		wg.Go(func() {
			for ctx.Err() == nil {
				floor := top()
				limited, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
				i, err := get(id).ReadIndex(limited)
				cancel()
				if err == nil && i < floor {
					t.Errorf("seed %d: member %d read index %d, and %d was applied",
						seed, id, i, floor)
				}
				mu.Lock()
				if fresh[id]++; err != nil {
					fresh[id] = 0
				}
				mu.Unlock()
				time.Sleep(time.Duration(1+id) * 3 * time.Millisecond)
			}
		})
	}
	n := 0
	write := func(id uint64, count int) {
		for range count {
			get(id).propose(fmt.Sprint(n))
			n++
			time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
		}
	}
	lead := leader()
	left := 3 - lead
	write(lead, 20)
	lossy := rng.IntN(2) == 0
	if lossy {
		net.mu.Lock()
		net.mu.loss = 0.3
		net.mu.Unlock()
	}
	gone := func() bool {
		return !slices.Contains(get(left).conf().GetVoters(), lead)
	}
	for range 10000 {
		// It is asked again as a client would; a leader that is removed takes nothing any more.
		if l := leader(); l == lead {
			_, _ = get(lead).ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
				Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(lead)}}})
		} else {
			_, _ = get(left).ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
				Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(lead)}}})
		}
		for range 5 {
			// These may follow the removal in the log.
			get(lead).propose(fmt.Sprint(n))
			n++
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		}
		if gone() {
			break
		}
	}
	if !gone() {
		t.Fatalf("seed %d: member %d is not removed", seed, lead)
	}
	write(left, 40)
	net.mu.Lock()
	net.mu.loss = 0
	net.mu.Unlock()
	time.Sleep(10 * time.Second)
	top()

	old := get(left)
	old.Stop()
	start(left, old.log, conf)
	time.Sleep(10 * time.Second)
	mu.Lock()
	if fresh[left] < 10 || fresh[3] < 10 {
		t.Errorf("seed %d: %d and %d reads without an error in the end", seed,
			fresh[left], fresh[3])
	}
	mu.Unlock()
	if st := get(lead).Status(); st.Lead == lead {
		t.Errorf("seed %d: member %d still leads", seed, lead)
	}
}
