package raftnode

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/store/wal"
	"vigil/internal/vfs/memfs"
)

// TestAppendsAreCut: however much waits, no group has more entries than MaxGroup, all of it arrives, and the
// log that a crash leaves between two groups has no commit index beyond its end. A group for which there is no
// space is divided.
func TestAppendsAreCut(t *testing.T) {
	for range 60 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		fs := memfs.New()
		o := wal.Options{FS: fs, Dir: "wal", ID: wal.Identity{ClusterID: 1, MemberID: 2}, SegmentBytes: 16 << 10}
		disk, err := wal.Create(o, wal.Start{Index: 1, Term: 1})
		if err != nil {
			t.Fatal(err)
		}
		limit := uint64(1 + r.IntN(400))
		log := &checkedLog{t: t, WAL: disk, limit: limit}
		a := &appender{n: &Node{cfg: Config{ID: 2, Log: log, MaxGroup: limit}}}
		index, want := uint64(1), 0
		for range 10 {
			var batches []wal.Batch
			for range 1 + r.IntN(4) {
				var b wal.Batch
				b.Sync = true
				if r.IntN(8) == 0 {
					index += r.Uint64N(3)
					b.Snapshot = &wal.Start{Index: index, Term: 1}
					want = 0
				}
				for range r.IntN(12) {
					index++
					want++
					b.Entries = append(b.Entries, &raftpb.Entry{Index: new(index), Term: new(uint64(1)), Data: make([]byte, r.IntN(200))})
				}
				if r.IntN(2) == 0 {
					b.HardState = &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(2)), Commit: new(index)}
				}
				if b.Snapshot != nil || b.Entries != nil || b.HardState != nil {
					batches = append(batches, b)
				}
			}
			if err := a.write(batches); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		last, _ := log.LastIndex()
		first, _ := log.FirstIndex()
		if last != index || int(last+1-first) != want {
			t.Errorf("seed %d: entries %d to %d, want %d up to %d", seed, first, last, want, index)
		}
		if err := disk.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkedLog checks each group and the log after it.
type checkedLog struct {
	*wal.WAL
	t     *testing.T
	limit uint64
}

func (l *checkedLog) Append(batches ...wal.Batch) error {
	size, n := uint64(0), 0
	for _, b := range batches {
		for _, e := range b.Entries {
			size += uint64(len(e.GetData())) + entryOverhead
			n++
		}
	}
	if n > 1 && size > l.limit {
		return fmt.Errorf("a group of %d bytes in %d entries, the most is %d", size, n, l.limit)
	}
	if n > 1 && rand.IntN(4) == 0 {
		return fmt.Errorf("a larger segment: %w", kv.ErrNoSpace) // there is room for fewer
	}
	if err := l.WAL.Append(batches...); err != nil {
		return err
	}
	if last, _ := l.LastIndex(); l.HardState().GetCommit() > last {
		return errors.New("the commit index is beyond the end of the log")
	}
	return nil
}

// shortLog is a log that takes nothing while err is set.
type shortLog struct {
	Log
	err     error
	batches []wal.Batch
}

func (l *shortLog) Append(batches ...wal.Batch) error {
	if l.err == nil {
		l.batches = append(l.batches, batches...)
	}
	return l.err
}

// TestDirect: the raft goroutine writes an entry only if nothing is queued or under way, and the entry is small. What the log does
// not take is written by the append goroutine as if nothing had been tried.
func TestDirect(t *testing.T) {
	log := &shortLog{err: kv.ErrNoSpace}
	n := &Node{cfg: Config{ID: 2, Log: log, MaxGroup: 1 << 20}, woken: make(chan struct{}, 1)}
	n.appends.init()
	waits := &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(4))}
	a := &appender{n: n, hard: waits, dirty: true}
	entry := func(index uint64, size int) *raftpb.Message {
		return &raftpb.Message{To: new(uint64(2)), Entries: []*raftpb.Entry{{Index: &index, Term: new(uint64(1)), Data: make([]byte, size)}},
			Responses: []*raftpb.Message{{To: new(uint64(2)), Index: &index}}}
	}
	answers := func() int {
		msgs, _ := n.inbox.take(nil, nil)
		return len(msgs)
	}
	first := entry(5, 100)
	if a.direct(first) || answers() != 0 {
		t.Fatal("an entry was answered that the log did not take")
	}
	log.err = nil
	if err := a.append([]*raftpb.Message{first}); err != nil || answers() != 1 {
		t.Fatalf("the append goroutine: %v", err)
	}
	if len(log.batches) != 1 || log.batches[0].HardState.GetCommit() != 4 || !log.batches[0].Sync {
		t.Fatalf("after a write that failed: %+v", log.batches)
	}
	if !a.direct(entry(6, directBytes)) || answers() != 1 || len(log.batches) != 2 || !log.batches[1].Sync {
		t.Fatalf("a small entry was not written, or not synced: %+v", log.batches)
	}
	snap := entry(7, 1)
	snap.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(7)), Term: new(uint64(1))}}
	two := entry(7, 1)
	two.Entries = append(two.Entries, entry(8, 1).Entries...)
	for what, m := range map[string]*raftpb.Message{"large": entry(7, directBytes+1), "a snapshot": snap, "two": two, "none": {}} {
		if a.direct(m) {
			t.Errorf("%s was written by the raft goroutine", what)
		}
	}
	n.appends.put(entry(7, 1))
	if a.direct(entry(8, 1)) {
		t.Error("an entry overtook one that is queued")
	}
	took := n.appends.take(nil)
	if len(took) != 1 || a.direct(entry(8, 1)) {
		t.Error("an entry overtook one that the append goroutine has taken")
	}
	n.appends.close()
	if a.direct(entry(8, 1)) {
		t.Error("an entry was written after the end")
	}
	if len(log.batches) != 2 {
		t.Errorf("%d batches", len(log.batches))
	}
}
