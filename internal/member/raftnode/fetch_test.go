package raftnode

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/store/wal"
)

// A member needs entries that the leader has no longer in memory, and the leader's disk does not
// answer. Heartbeats go out on time, and the others go on. When the disk answers, the member
// catches up.
func TestASlowDiskDelaysNoHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := &network{}
		net.mu.rng = rand.New(rand.NewPCG(1, 1))
		net.mu.nodes = map[uint64]*Node{}
		net.mu.side = map[uint64]int{3: 1}
		disk := make(chan struct{})
		var members []*member
		for id := uint64(1); id <= 3; id++ {
			log := newMemLog(wal.Start{Index: 1, Term: 1})
			if id < 3 {
				log.disk = disk
			}
			m := startMember(t, log, func(c *Config) {
				c.ID = id
				c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
				c.Transport = port{net, id}
				c.MaxInFlight, c.MaxMessage, c.MaxApplying = 8, 100, 400
				c.TickInterval = 100 * time.Millisecond
			})
			members = append(members, m)
			net.mu.Lock()
			net.mu.nodes[id] = m.Node
			net.mu.Unlock()
		}
		for members[0].Status().Lead == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		term := members[0].Status().Term
		propose := func(from, to int) {
			for i := from; i < to; i++ {
				members[0].propose(fmt.Sprintf("entry %d with some bytes", i))
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(time.Second)
			for _, m := range members[:2] {
				if n := len(m.applied()); n != to {
					t.Fatalf("%d of %d entries are applied", n, to)
				}
			}
		}
		propose(0, 200)
		for _, m := range members[:2] {
			m.log.mu.Lock()
			m.log.oldOnDisk = 150
			m.log.mu.Unlock()
		}
		net.mu.Lock()
		clear(net.mu.side) // the third comes back, and needs the old entries
		net.mu.Unlock()
		time.Sleep(5 * time.Second)
		propose(200, 300)
		if n := len(members[2].applied()); n != 0 {
			t.Fatalf("%d entries arrived past the disk", n)
		}
		if st := members[0].Status(); st.Term != term ||
			members[0].Status().LateHeartbeats+members[1].Status().LateHeartbeats > 0 {
			t.Errorf("term %d became %d, %d heartbeats were late", term, st.Term,
				members[0].Status().LateHeartbeats+members[1].Status().LateHeartbeats)
		}
		close(disk)
		time.Sleep(3 * time.Second)
		if got, want := members[2].applied(), members[0].applied(); !slices.Equal(got, want) {
			t.Errorf("%d of %d entries arrived", len(got), len(want))
		}
	})
}

// Entries that were handed out of no memory at all are applied in order, without waiting for ticks,
// and an election in between finds what it asks for.
func TestEntriesOnDiskAreApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		log.uncached = true
		for i := range uint64(2000) {
			log.mu.ents = append(log.mu.ents,
				&raftpb.Entry{Index: new(2 + i), Term: new(uint64(2)), Data: fmt.Append(nil, i)})
		}
		log.mu.hard = &raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(1)),
			Commit: new(uint64(1901))}
		start := time.Now()
		m := startMember(t, log, func(c *Config) { c.MaxApplying = 1000 })
		synctest.Wait()
		if got := m.applied(); len(got) != 2000 || got[1999] != "1999" {
			t.Errorf("%d entries of 2000", len(got))
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		time.Sleep(3 * time.Second)
		m.fetcher.mu.Lock()
		defer m.fetcher.mu.Unlock()
		if n := len(m.fetcher.mu.chunks); n > 0 {
			t.Errorf("%d chunks are kept of what was not used for long", n)
		}
	})
}

// Random reads through a fetcher give what the log has, also while the log is cut, extended and
// overwritten.
func TestFetcherAgreesWithTheLog(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	log := newMemLog(wal.Start{Index: 1, Term: 1})
	f := &fetcher{}
	f.init(&Config{Log: log, MaxMessage: 300, MaxApplying: 1000})
	term := uint64(1)
	entry := func(i uint64) *raftpb.Entry {
		return &raftpb.Entry{Index: &i, Term: new(term), Data: make([]byte, rng.IntN(60))}
	}
	hits := 0
	for range 20000 {
		first, _ := log.FirstIndex()
		last, _ := log.LastIndex()
		switch k := rng.IntN(20); {
		case k < 4 || last < first+5:
			if err := log.Append(wal.Batch{Entries: []*raftpb.Entry{entry(last + 1)}}); err != nil {
				t.Fatal(err)
			}
		case k == 4:
			term++
			if err := log.Append(wal.Batch{Entries: []*raftpb.Entry{entry(last - rng.Uint64N(3))}}); err != nil {
				t.Fatal(err)
			}
			log.mu.ents = log.mu.ents[:len(log.mu.ents):len(log.mu.ents)]
		case k == 5:
			log.truncate(first + rng.Uint64N(3))
		case k == 6:
			f.dropUnused(50)
		case k < 12:
			if len(f.mu.wanted) > 0 {
				if err := f.readChunk(f.mu.wanted[0]); err != nil {
					t.Fatal(err)
				}
			}
		default:
			lo := first + rng.Uint64N(last-first+1)
			hi, most := lo+1+rng.Uint64N(last-lo+1), uint64(rng.IntN(500))
			got, short := f.entries(lo, hi, most)
			want, err := log.entries(lo, hi, 1<<40)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
				t.Fatalf("seed %d: entries from %d to %d: %v, want %v", seed, lo, hi, got, want)
			}
			size := 0
			for _, e := range want[:min(len(got)+1, len(want))] {
				size += proto.Size(e)
			}
			full := len(got) == len(want) || len(got) > 0 && uint64(size) > most
			if !short && !full || short && (len(got) == len(want) || len(f.mu.wanted) == 0) {
				t.Fatalf("seed %d: entries from %d to %d: %d of %d, short is %v", seed, lo, hi,
					len(got), len(want), short)
			}
			hits += len(got)
		}
		if len(f.mu.chunks) > keepChunks && f.mu.bytes > f.keepBytes {
			t.Fatalf("seed %d: %d bytes are kept, at most %d", seed, f.mu.bytes, f.keepBytes)
		}
	}
	if hits < 1000 {
		t.Errorf("%d entries were found", hits)
	}
	log.fail(nil, errors.New("sector not found"))
	if err := f.readChunk(1 << 40); err != nil {
		t.Errorf("what is not there was read: %v", err)
	}
}

// A lack of memory that reading the log meets ends nothing: it is read again.
func TestFetchWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log,
			func(c *Config) { c.ConfState = &raftpb.ConfState{Voters: []uint64{c.ID}} })
		time.Sleep(time.Second)
		log.fail(nil, fmt.Errorf("read: %w", kv.ErrTooManyRequests))
		m.propose("an entry that is only on disk when it is applied")
		time.Sleep(3 * time.Second)
		if n := len(m.applied()); n != 0 {
			t.Fatalf("%d entries are applied without having been read", n)
		}
		if err := m.Err(); err != nil {
			t.Fatal(err)
		}
		log.fail(nil, nil)
		time.Sleep(time.Second)
		if n := len(m.applied()); n != 1 {
			t.Errorf("%d entries are applied, want 1", n)
		}
	})
}
