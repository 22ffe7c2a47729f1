package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

const testDir = "/data/wal"

var testID = Identity{ClusterID: 0xc1, MemberID: 0x11}

func testOptions(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: testDir, ID: testID, SegmentBytes: minSegmentBytes}
}

func entry(index, term uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Index: &index, Term: &term, Type: raftpb.EntryNormal.Enum(), Data: data}
}

// entries makes n entries from index on, each with its index and term in size bytes of data.
func entries(index, term uint64, n, size int) []*raftpb.Entry {
	var out []*raftpb.Entry
	for i := range n {
		data := fmt.Appendf(make([]byte, 0, size), "%d/%d ", index+uint64(i), term)
		for len(data) < size {
			data = append(data, byte('a'+len(data)%26))
		}
		out = append(out, entry(index+uint64(i), term, data[:size]))
	}
	return out
}

func hard(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, o Options, start Start) *WAL {
	t.Helper()
	w, err := Create(o, start)
	must(t, err)
	return w
}

func reopen(t testing.TB, o Options) *WAL {
	t.Helper()
	w, err := Open(o)
	must(t, err)
	return w
}

// sameEntries compares with proto.Equal, so presence of optional fields counts.
func sameEntries(a, b []*raftpb.Entry) bool {
	return slices.EqualFunc(a, b, func(x, y *raftpb.Entry) bool { return proto.Equal(x, y) })
}

func describe(ents []*raftpb.Entry) string {
	var b strings.Builder
	for _, e := range ents {
		fmt.Fprintf(&b, " %d/%d(%d)", e.GetIndex(), e.GetTerm(), len(e.Data))
	}
	return b.String()
}

// all returns every entry of the log.
func all(t testing.TB, w *WAL) []*raftpb.Entry {
	t.Helper()
	first, _ := w.FirstIndex()
	last, _ := w.LastIndex()
	if first > last {
		return nil
	}
	ents, err := w.Entries(first, last+1, math.MaxUint64)
	must(t, err)
	return ents
}

func TestAppendAndReopen(t *testing.T) {
	for name, env := range map[string]Options{
		"memory": testOptions(memfs.New()),
		"disk": {FS: vfs.OS(), Dir: filepath.Join(t.TempDir(), "data", "wal"), ID: testID,
			SegmentBytes: minSegmentBytes},
	} {
		t.Run(name, func(t *testing.T) {
			there, err := Exists(env.FS, env.Dir)
			if err != nil || there {
				t.Fatalf("exists before it was made: %v, %v", there, err)
			}
			if _, err := Open(env); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("open of nothing: %v", err)
			}
			w := create(t, env, Start{Index: 1, Term: 1})
			if there, err = Exists(env.FS, env.Dir); err != nil || !there {
				t.Fatalf("exists: %v, %v", there, err)
			}
			if w.HardState() != nil {
				t.Fatalf("a new log has hard state %v", w.HardState())
			}
			if _, err := Create(env, Start{}); !errors.Is(err, fs.ErrExist) {
				t.Fatalf("created twice: %v", err)
			}
			var want []*raftpb.Entry
			for i := range 40 {
				ents := entries(uint64(2+3*i), uint64(1+i/10), 3, 100+i)
				want = append(want, ents...)
				must(t, w.Append(Batch{HardState: hard(uint64(1+i/10), 7, uint64(1+3*i)),
					Entries: ents, Sync: i%3 == 0}))
			}
			check := func() {
				t.Helper()
				if got := all(t, w); !sameEntries(got, want) {
					t.Fatalf("got %s\nwant %s", describe(got), describe(want))
				}
				if h := w.HardState(); !proto.Equal(h, hard(4, 7, 118)) {
					t.Fatalf("hard state %v", h)
				}
			}
			check()
			if m := w.Metrics(); m.Segments < 3 {
				t.Fatalf("only %d segments", m.Segments)
			}
			must(t, w.Close())
			must(t, w.Close())
			if err := w.Append(Batch{Sync: true}); !errors.Is(err, ErrClosed) {
				t.Fatalf("append after close: %v", err)
			}
			if _, err := w.Entries(2, 3, 0); !errors.Is(err, ErrClosed) {
				t.Fatalf("read after close: %v", err)
			}
			if err := w.TruncateBefore(50); !errors.Is(err, ErrClosed) {
				t.Fatalf("truncate after close: %v", err)
			}
			w = reopen(t, env)
			check()
			must(t, w.Close())
		})
	}
}

// What optional fields an entry has survives, and so do types and empty data.
func TestEntryFields(t *testing.T) {
	index, term := uint64(1), uint64(3)
	next := func() (*uint64, *uint64) { i := index; index++; return &i, &term }
	var want []*raftpb.Entry
	for _, typ := range []*raftpb.EntryType{nil, raftpb.EntryNormal.Enum(),
		raftpb.EntryConfChange.Enum(), raftpb.EntryConfChangeV2.Enum()} {
		for _, data := range [][]byte{nil, {}, []byte("x"), bytes.Repeat([]byte("0123"), 3000)} {
			e := &raftpb.Entry{Type: typ, Data: data}
			e.Index, e.Term = next()
			want = append(want, e)
		}
	}
	o := testOptions(memfs.New())
	w := create(t, o, Start{})
	must(t, w.Append(Batch{Entries: want, Sync: true}))
	must(t, w.Close())
	w = reopen(t, o)
	if got := all(t, w); !sameEntries(got, want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
	// The limit counts what protobuf would take, on disk and in the cache.
	for lo := range want {
		for n := range len(want) - lo {
			size := 0
			for _, e := range want[lo : lo+n] {
				size += proto.Size(e)
			}
			for _, d := range []int{-1, 0, 1} {
				limit := uint64(max(size+d, 0))
				got, err := w.Entries(uint64(lo+1), uint64(len(want)+1), limit)
				must(t, err)
				k, sum := 1, proto.Size(want[lo])
				for lo+k < len(want) && uint64(sum+proto.Size(want[lo+k])) <= limit {
					sum += proto.Size(want[lo+k])
					k++
				}
				if !sameEntries(got, want[lo:lo+k]) {
					t.Fatalf("entries from %d of at most %d bytes: got%s", lo+1,
						limit, describe(got))
				}
			}
		}
	}
}

func TestReadBounds(t *testing.T) {
	w := create(t, testOptions(memfs.New()), Start{Index: 10, Term: 2})
	must(t, w.Append(Batch{Entries: entries(11, 3, 5, 10), Sync: true}))
	must(t, w.TruncateBefore(13))
	for _, c := range []struct {
		lo, hi uint64
		err    error
		n      int
	}{{12, 14, raft.ErrCompacted, 0}, {13, 13, nil, 0}, {13, 16, nil, 3},
		{13, 17, raft.ErrUnavailable, 0},
		{16, 16, nil, 0}, {15, 14, raft.ErrUnavailable, 0}, {17, 17, raft.ErrUnavailable, 0}} {
		ents, err := w.Entries(c.lo, c.hi, math.MaxUint64)
		if !errors.Is(err, c.err) || len(ents) != c.n {
			t.Errorf("Entries(%d, %d): %d entries, %v; want %d, %v", c.lo, c.hi, len(ents),
				err, c.n, c.err)
		}
	}
	for i, want := range map[uint64]error{11: raft.ErrCompacted, 12: nil, 15: nil,
		16: raft.ErrUnavailable} {
		if _, err := w.Term(i); !errors.Is(err, want) {
			t.Errorf("Term(%d): %v, want %v", i, err, want)
		}
	}
}

// An append that contradicts the log is refused and changes nothing.
func TestInvalidAppends(t *testing.T) {
	o := testOptions(memfs.New())
	w := create(t, o, Start{Index: 5, Term: 2})
	must(t, w.Append(Batch{Entries: entries(6, 3, 4, 10), Sync: true}))
	before := all(t, w)
	for name, b := range map[string][]Batch{
		"gap":              {{Entries: entries(11, 3, 1, 10)}},
		"below the start":  {{Entries: entries(5, 3, 1, 10)}},
		"gap inside":       {{Entries: append(entries(10, 3, 1, 10), entries(12, 3, 1, 10)...)}},
		"falling inside":   {{Entries: append(entries(10, 4, 1, 10), entries(11, 3, 1, 10)...)}},
		"falling":          {{Entries: entries(10, 2, 1, 10)}},
		"falling at start": {{Entries: entries(6, 1, 1, 10)}},
		"falling in group": {{Entries: entries(10, 5, 3, 10)}, {Entries: entries(11, 4, 1, 10)}},
		"gap in group":     {{Entries: entries(10, 5, 3, 10)}, {Entries: entries(14, 5, 1, 10)}},
		"gap after reset":  {{Snapshot: &Start{20, 4}, Entries: entries(22, 4, 1, 10)}},
		"reset and fall":   {{Snapshot: &Start{20, 4}}, {Entries: entries(21, 3, 1, 10)}},
	} {
		if err := w.Append(b...); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, w.Append(Batch{Entries: entries(10, 3, 1, 10), Sync: true}))
	must(t, w.Close())
	w = reopen(t, o)
	if got := all(t, w); !sameEntries(got[:4], before) || len(got) != 5 {
		t.Fatalf("got %s", describe(got))
	}
}

func TestOverwriteInOneGroup(t *testing.T) {
	o := testOptions(memfs.New())
	w := create(t, o, Start{})
	must(t, w.Append(
		Batch{Entries: entries(1, 1, 5, 10), HardState: hard(1, 1, 0)},
		Batch{Entries: entries(3, 2, 4, 20), HardState: hard(2, 1, 2), Sync: true},
		Batch{Entries: entries(7, 2, 1, 30), HardState: hard(2, 2, 3)},
		Batch{Entries: entries(5, 3, 1, 40)},
	))
	want := slices.Concat(entries(1, 1, 2, 10), entries(3, 2, 2, 20), entries(5, 3, 1, 40))
	for range 2 {
		if got := all(t, w); !sameEntries(got, want) {
			t.Fatalf("got %s", describe(got))
		}
		if m := w.Metrics(); w.HardState().GetVote() != 2 || m.Writes.Count() > 1 ||
			m.Syncs.Count() > 1 {
			t.Fatalf("hard state %v, %+v", w.HardState(), m)
		}
		must(t, w.Close())
		w = reopen(t, o)
	}
}

func TestSnapshotResets(t *testing.T) {
	o := testOptions(memfs.New())
	w := create(t, o, Start{})
	for i := range 30 {
		must(t, w.Append(Batch{Entries: entries(uint64(1+i*5), 1, 5, 200), Sync: true}))
	}
	must(t, w.Append(Batch{Snapshot: &Start{Index: 500, Term: 4}, HardState: hard(4, 0, 500)}))
	must(t, w.TruncateBefore(501))
	if m := w.Metrics(); m.Segments != 1 || m.Spares != maxSpares {
		t.Fatalf("%d segments, %d spares", m.Segments, m.Spares)
	}
	must(t, w.Append(Batch{Entries: entries(501, 5, 2, 10), Sync: true}))
	for range 2 {
		if got := all(t, w); !sameEntries(got, entries(501, 5, 2, 10)) {
			t.Fatalf("got %s", describe(got))
		}
		if term, err := w.Term(500); term != 4 || err != nil {
			t.Fatalf("term of the snapshot: %d, %v", term, err)
		}
		must(t, w.Close())
		w = reopen(t, o)
	}
}

func TestTruncateRecycles(t *testing.T) {
	o := testOptions(memfs.New())
	o.SegmentBytes = 16 << 10
	w := create(t, o, Start{})
	next := uint64(1)
	for range 50 {
		must(t, w.Append(Batch{Entries: entries(next, 1, 10, 100),
			HardState: hard(1, 1, next), Sync: true}))
		next += 10
		if next > 40 {
			must(t, w.TruncateBefore(next-30))
		}
	}
	m := w.Metrics()
	if m.Segments > 2 || m.Recycled == 0 || m.Removed != 0 {
		t.Fatalf("%+v", m)
	}
	if first, _ := w.FirstIndex(); first != next-30 {
		t.Fatalf("first index %d", first)
	}
	if got := w.Bytes(); got != 30*(100+entryHeadSize) {
		t.Fatalf("%d bytes", got)
	}
	must(t, w.Close())
	w = reopen(t, o)
	if first, _ := w.FirstIndex(); first > next-30 {
		t.Fatalf("first index %d", first)
	}
	got, err := w.Entries(next-30, next, math.MaxUint64)
	must(t, err)
	if !sameEntries(got, entries(next-30, 1, 30, 100)) {
		t.Fatalf("got %s", describe(got))
	}
	if err := w.TruncateBefore(next + 1); err == nil {
		t.Fatal("truncated beyond the end")
	}
	must(t, w.TruncateBefore(next))
	if term, err := w.Term(next - 1); term != 1 || err != nil {
		t.Fatalf("the term before an emptied log: %d, %v", term, err)
	}
}

// A suffix that a later segment replaced may leave no segment that begins before the log does.
func TestTruncateAfterOverwrite(t *testing.T) {
	for keep := uint64(2); keep <= 60; keep++ {
		o := testOptions(memfs.New())
		w := create(t, o, Start{})
		must(t, w.Append(Batch{Entries: entries(1, 1, 30, 100), Sync: true}))
		must(t, w.Append(Batch{Entries: entries(31, 1, 30, 100), Sync: true}))
		must(t, w.Append(Batch{Entries: entries(20, 2, 30, 100), Sync: true}))
		must(t, w.Append(Batch{Entries: entries(25, 3, 36, 100), Sync: true}))
		must(t, w.TruncateBefore(keep))
		want := all(t, w)
		term, err := w.Term(keep - 1)
		must(t, err)
		must(t, w.Close())
		w = reopen(t, o)
		if first, _ := w.FirstIndex(); first > keep {
			t.Fatalf("keep %d: the log begins at %d", keep, first)
		}
		if got, err := w.Term(keep - 1); got != term || err != nil {
			t.Fatalf("keep %d: term of the entry before is %d, %v, was %d", keep, got, err, term)
		}
		got := all(t, w)
		if !sameEntries(got[len(got)-len(want):], want) {
			t.Fatalf("keep %d: got %s\nwant %s", keep, describe(got), describe(want))
		}
	}
}

func TestLargeGroup(t *testing.T) {
	o := testOptions(memfs.New())
	w := create(t, o, Start{})
	want := entries(1, 1, 3, 10)
	must(t, w.Append(Batch{Entries: want, Sync: true}))
	big := entries(4, 1, 3, 100_000)
	must(t, w.Append(Batch{Entries: big, Sync: true}))
	more := entries(7, 1, 3, 2000)
	must(t, w.Append(Batch{Entries: more, Sync: true}))
	want = slices.Concat(want, big, more)
	must(t, w.Close())
	w = reopen(t, o)
	if got := all(t, w); !sameEntries(got, want) {
		t.Fatalf("got %s", describe(got))
	}
	// A large segment is not kept for later.
	must(t, w.TruncateBefore(9))
	if m := w.Metrics(); m.Segments != 1 || m.Recycled != 1 || m.Removed != 1 {
		t.Fatalf("%+v", m)
	}
}

func TestCacheIsBounded(t *testing.T) {
	o := testOptions(memfs.New())
	o.CacheBytes = 1000
	w := create(t, o, Start{})
	for i := range 100 {
		must(t, w.Append(Batch{Entries: entries(uint64(1+i), 1, 1, 100)}))
		if m := w.Metrics(); m.CacheBytes > 1000 {
			t.Fatalf("%d bytes cached", m.CacheBytes)
		}
	}
	if got := all(t, w); !sameEntries(got, entries(1, 1, 100, 100)) {
		t.Fatalf("got %s", describe(got))
	}
	if w.Metrics().DiskReads == 0 {
		t.Fatal("nothing came from disk")
	}
	before := w.Metrics().DiskReads
	if _, err := w.Entries(95, 101, math.MaxUint64); err != nil || w.Metrics().DiskReads != before {
		t.Fatalf("the newest entries came from disk: %v", err)
	}
}

func TestIdentityAndVersion(t *testing.T) {
	mem := memfs.New()
	o := testOptions(mem)
	must(t, create(t, o, Start{Index: 3, Term: 1}).Close())
	for _, id := range []Identity{{1, testID.MemberID}, {testID.ClusterID, 1}} {
		bad := o
		bad.ID = id
		if _, err := Open(bad); !errors.Is(err, ErrIdentity) {
			t.Errorf("as %v: %v", id, err)
		}
	}
	if id, err := Peek(mem, testDir); err != nil || id != testID {
		t.Errorf("peek: %v %v", id, err)
	}
	for _, version := range []uint32{Version - 1, Version + 1} {
		f, err := mem.OpenWrite(segmentPath(testDir, 1))
		must(t, err)
		h := segmentHeader{version: version, id: 1, owner: testID}
		_, err = f.WriteAt(h.encode(), 0)
		must(t, errors.Join(err, f.Close()))
		before := readBlock(t, mem, 1, 0, minSegmentBytes)
		text := fmt.Sprintf("%s: wal: unknown format version: it is in version %d, this program reads version %d", segmentName(1), version, Version)
		_, err = Open(o)
		if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), text) {
			t.Errorf("version %d: %v", version, err)
		}
		if _, err := Peek(mem, testDir); !errors.Is(err, ErrVersion) ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("peek: version %d: %v", version, err)
		}
		if !bytes.Equal(before, readBlock(t, mem, 1, 0, minSegmentBytes)) {
			t.Errorf("version %d: the file was changed", version)
		}
	}
}

func TestMissingSegment(t *testing.T) {
	mem := memfs.New()
	o := testOptions(mem)
	w := create(t, o, Start{})
	for i := range 20 {
		must(t, w.Append(Batch{Entries: entries(uint64(1+i*10), 1, 10, 100), Sync: true}))
	}
	must(t, w.Close())
	must(t, mem.Remove(segmentPath(testDir, 2)))
	var ce *CorruptError
	if _, err := Open(o); !errors.Is(err, kv.ErrCorrupt) || !errors.As(err, &ce) ||
		!strings.Contains(err.Error(), segmentName(2)) {
		t.Fatalf("a missing segment: %v", err)
	}
}

func TestOptionsValidate(t *testing.T) {
	_, err := Open(Options{SegmentBytes: 5, CacheBytes: -1})
	for _, want := range []string{"FS", "Dir", "SegmentBytes", "CacheBytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// Entries that are removed from memory are read from disk, and the newer ones are not.
func TestUncache(t *testing.T) {
	w := create(t, testOptions(memfs.New()), Start{Index: 10, Term: 1})
	must(t, w.Append(Batch{Entries: entries(11, 2, 90, 100)}))
	whole := w.Metrics().CacheBytes
	for _, step := range []struct {
		index uint64
		left  int64
	}{{5, 90}, {10, 90}, {11, 89}, {50, 50}, {40, 50}, {99, 1}, {100, 0}, {500, 0}} {
		w.Uncache(step.index)
		if m := w.Metrics(); m.CacheBytes != whole/90*step.left {
			t.Fatalf("after %d there are %d bytes in memory of %d", step.index, m.CacheBytes, whole)
		}
		before := w.Metrics().DiskReads
		if _, err := w.Entries(101-uint64(step.left), 101, math.MaxUint64); err != nil ||
			w.Metrics().DiskReads != before {
			t.Fatalf("after %d newer entries came from disk: %v", step.index, err)
		}
		if got := all(t, w); !sameEntries(got, entries(11, 2, 90, 100)) {
			t.Fatalf("after %d: got %s", step.index, describe(got))
		}
	}
	must(t, w.Append(Batch{Entries: entries(101, 2, 1, 100)}))
	if m := w.Metrics(); m.CacheBytes != whole/90 {
		t.Errorf("%d bytes in memory after another entry", m.CacheBytes)
	}
	must(t, w.TruncateBefore(60))
	w.Uncache(101)
	if got := all(t, w); !sameEntries(got, entries(60, 2, 42, 100)) {
		t.Errorf("got %s", describe(got))
	}
}
