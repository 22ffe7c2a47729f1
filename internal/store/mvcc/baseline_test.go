package mvcc

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/meter"
	"vigil/internal/vfs"
)

// heapSize returns the size of the live heap.
func heapSize() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// allLeases says that every lease exists.
type allLeases struct{}

func (allLeases) Exists(int64) bool { return true }

// TestBaseline: after each large operation the memory of the store is back at the baseline: what the open segment may have in memory, and
// what the index needs for the keys.
//
//vigil:norace
func TestBaseline(t *testing.T) {
	const (
		segment = 4 << 20
		large   = 96 << 20
		slack   = 2 << 20
	)
	log, err := history.Create(history.Options{FS: vfs.OS(), Dir: t.TempDir(), SegmentBytes: segment, ClusterID: 1, MemberID: 2}, history.Applied{Term: 1, Index: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s, err := Open(log, Options{Limits: Limits{ResultBytes: 16 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := s.Writer()
	index := uint64(1)
	commit := func() {
		index++
		if _, err := w.Commit(history.Applied{Term: 1, Index: index}); err != nil {
			t.Fatal(err)
		}
	}
	put := func(key string, value []byte, lease int64) kv.Op {
		return kv.Op{Put: &kv.PutRequest{Key: []byte(key), Value: value, Lease: lease}}
	}
	do := func(limited bool, ops ...kv.Op) {
		t.Helper()
		if _, err := w.Txn(&kv.TxnRequest{Success: ops}, allLeases{}); meter.IsLimit(err) != limited || err != nil && !limited {
			t.Fatal(err)
		}
	}
	value := func(n int) []byte { return bytes.Repeat([]byte("v"), n) }
	all := &kv.RangeRequest{Key: []byte("m"), End: []byte{0}}
	for _, c := range []struct {
		name string
		run  func()
	}{
		{"puts of large values, one by one", func() {
			for i := range large / (1 << 20) {
				do(false, put(fmt.Sprint("l", i%4), value(1<<20), 7))
				commit()
			}
		}},
		{"a small put after a large one", func() {
			do(false, put("l0", value(large/2), 0))
			commit()
			for range 3 {
				do(false, put("s", value(10), 0))
				commit()
			}
		}},
		{"many puts in one batch", func() {
			for i := range large / (128 << 10) {
				do(false, put(fmt.Sprint("m", i%64), value(128<<10), 8))
			}
			commit()
		}},
		{"a large transaction", func() {
			var ops []kv.Op
			for i := range 60 {
				ops = append(ops, put(fmt.Sprint("m", i), value(1<<20), 9))
			}
			do(false, ops...)
			commit()
		}},
		{"a transaction that is undone", func() {
			var ops []kv.Op
			for i := range 60 {
				ops = append(ops, put(fmt.Sprint("m", i), value(1<<20), 9))
			}
			do(true, append(ops, kv.Op{Range: all}, kv.Op{Range: all})...)
			commit()
		}},
		{"a range in a transaction", func() {
			do(false, kv.Op{Range: &kv.RangeRequest{Key: []byte("m1"), End: []byte("m19")}})
			commit()
		}},
		{"compares of large values", func() {
			if _, err := w.Txn(&kv.TxnRequest{Compare: []kv.Compare{{Key: []byte("l1"), Target: kv.CompareValue, Value: value(1 << 20)}}}, nil); err != nil {
				t.Fatal(err)
			}
			commit()
		}},
		{"a range", func() {
			if _, err := s.Range(t.Context(), all); err != nil {
				t.Fatal(err)
			}
		}},
		{"events", func() {
			var buf kv.EventBuffer
			if _, _, err := s.EventsIn(&buf, 2, s.Revision(), 4<<20); err != nil {
				t.Fatal(err)
			}
			buf = kv.EventBuffer{}
		}},
		{"a large deletion", func() {
			if _, err := w.DeleteRange(&kv.DeleteRangeRequest{Key: []byte("m"), End: []byte{0}}); err != nil {
				t.Fatal(err)
			}
			commit()
		}},
		{"a compaction", func() {
			if _, err := w.Compact(w.Revision()); err != nil {
				t.Fatal(err)
			}
			commit()
			if err := s.WaitReclaimed(t.Context(), s.CompactRevision()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		before := heapSize()
		c.run()
		// A segment that is too large is sealed in the background.
		grown := heapSize() - before
		for deadline := time.Now().Add(time.Minute); grown > segment+slack && time.Now().Before(deadline); grown = heapSize() - before {
			runtime.Gosched()
		}
		t.Logf("%-40s %8d kB", c.name, grown>>10)
		if grown > segment+slack {
			t.Errorf("after %s the heap has %d bytes more, want %d at most", c.name, grown, segment+slack)
		}
	}
}

// TestViewFollowsSegment: readers do not keep a sealed segment in memory because only meta records are written after it.
func TestViewFollowsSegment(t *testing.T) {
	b := newBed(t, Options{}, 64<<10)
	defer b.close(t)
	w := b.Writer()
	if _, err := w.Put(&kv.PutRequest{Key: []byte("k"), Value: make([]byte, 40<<10)}, nil); err != nil {
		t.Fatal(err)
	}
	b.commit(t)
	first := b.log.View()
	for b.log.View().SameSegment(first) {
		if err := w.SetMeta(history.Meta{Bucket: 'x', Key: []byte("k"), Value: make([]byte, 8<<10)}); err != nil {
			t.Fatal(err)
		}
		b.commit(t)
	}
	if b.snap.Load().hist.SameSegment(first) {
		t.Error("readers have a view of the segment before")
	}
}
