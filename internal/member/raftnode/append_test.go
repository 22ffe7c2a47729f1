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

// TestAppendsAreCut: however much waits, no group has more entries than MaxGroup, all of it
// arrives, and the log that a crash leaves between two groups has no commit index beyond its end. A
// group for which there is no space is divided.
func TestAppendsAreCut(t *testing.T) {
	for range 60 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		fs := memfs.New()
		o := wal.Options{FS: fs, Dir: "wal", ID: wal.Identity{ClusterID: 1, MemberID: 2},
			SegmentBytes: 16 << 10}
		disk, err := wal.Create(o, wal.Start{Index: 1, Term: 1})
		if err != nil {
			t.Fatal(err)
		}
		limit := uint64(1 + r.IntN(400))
		log := &checkedLog{t: t, WAL: disk, limit: limit}
		a := &appender{id: 2, log: log, maxGroup: limit}
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
					b.Entries = append(b.Entries,
						&raftpb.Entry{Index: new(index), Term: new(uint64(1)),
							Data: make([]byte, r.IntN(200))})
				}
				if r.IntN(2) == 0 {
					b.HardState = &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(2)),
						Commit: new(index)}
				}
				if b.Snapshot != nil || b.Entries != nil || b.HardState != nil {
					batches = append(batches, b)
				}
			}
			if err := a.writeBatches(batches); err != nil {
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
