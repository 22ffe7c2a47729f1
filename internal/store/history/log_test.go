package history

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// model is what a log should hold: the batches, dumb and whole.
type model struct {
	batches []batch
}

type batch struct {
	recs    []rec
	metas   []Meta
	applied Applied
}

type rec struct {
	rev       kv.Rev
	tombstone bool
	data      []byte
}

func (m *model) recs() (all []rec) {
	for _, b := range m.batches {
		all = append(all, b.recs...)
	}
	return all
}

func (m *model) last() (last kv.Rev) {
	for _, b := range m.batches {
		for _, r := range b.recs {
			last = r.rev
		}
	}
	return last
}

func (m *model) meta() map[byte]map[string]string {
	all := map[byte]map[string]string{}
	for _, b := range m.batches {
		for _, r := range b.metas {
			if all[r.Bucket] == nil {
				all[r.Bucket] = map[string]string{}
			}
			if r.Deleted {
				delete(all[r.Bucket], string(r.Key))
			} else {
				all[r.Bucket][string(r.Key)] = string(r.Value)
			}
		}
	}
	return all
}

// randomBatch makes up the next batch.
func (m *model) randomBatch(rng *rand.Rand, last kv.Rev, index uint64) batch {
	b := batch{applied: Applied{Term: 1 + index/10, Index: index}}
	data := func(n int) []byte {
		d := make([]byte, n)
		for i := range d {
			d[i] = byte(rng.Uint32())
		}
		if rng.IntN(10) == 0 {
			copy(d, format.BatchMagic)
		}
		return d
	}
	for range rng.IntN(4) {
		main := last.Main + 1
		if rng.IntN(30) == 0 {
			main += rng.Int64N(200) // a gap, as compaction and a restore leave them
		}
		subs := 1
		if rng.IntN(10) == 0 {
			subs = 1 + rng.IntN(20)
		}
		sub := int64(0)
		for range subs {
			if rng.IntN(100) == 0 {
				sub += rng.Int64N(3)
			}
			size := rng.IntN(200)
			if rng.IntN(200) == 0 {
				size = rng.IntN(30000)
			}
			last = kv.Rev{Main: main, Sub: sub}
			b.recs = append(b.recs, rec{last, rng.IntN(4) == 0, data(size)})
			sub++
		}
	}
	if rng.IntN(4) == 0 {
		for range 1 + rng.IntN(3) {
			r := Meta{Bucket: byte(rng.IntN(3)), Key: fmt.Appendf(nil, "k%d", rng.IntN(10)),
				Deleted: rng.IntN(3) == 0}
			if !r.Deleted {
				r.Value = data(rng.IntN(50))
			}
			b.metas = append(b.metas, r)
		}
	}
	return b
}

func appendBatch(l *Log, b batch) error {
	for _, m := range b.metas {
		if err := l.AppendMeta(m); err != nil {
			return err
		}
	}
	for _, r := range b.recs {
		ref, err := l.AppendKV(r.rev, r.tombstone, r.data)
		if err != nil {
			return err
		}
		if !bytes.Equal(ref, r.data) {
			return fmt.Errorf("the reference of %v is not what was appended", r.rev)
		}
	}
	return nil
}

// verify compares a view with the model's records, by every way of reading.
func verify(v *View, want []rec) error {
	i := 0
	s := v.Scan(kv.Rev{})
	defer s.Close()
	for s.Next() {
		if i == len(want) {
			return fmt.Errorf("scan: %v is too much", s.Rev())
		}
		w := want[i]
		if s.Rev() != w.rev || s.Tombstone() != w.tombstone || !bytes.Equal(s.Data(), w.data) {
			return fmt.Errorf("scan: record %d is %v, want %v", i, s.Rev(), w.rev)
		}
		i++
	}
	if s.Err() != nil {
		return fmt.Errorf("scan: %w", s.Err())
	}
	if i != len(want) {
		return fmt.Errorf("scan: %d records, want %d", i, len(want))
	}
	var all kv.Records
	revs := make([]kv.Rev, len(want))
	for i := range want {
		revs[i] = want[i].rev
	}
	if _, err := v.GetSome(revs, math.MaxInt, &all); err != nil {
		return fmt.Errorf("get many: %w", err)
	}
	present := map[kv.Rev]bool{}
	for i, w := range want {
		present[w.rev] = true
		if !bytes.Equal(all.At(i), w.data) {
			return fmt.Errorf("get many: %v differs", w.rev)
		}
		got, err := v.Get(w.rev, []byte("x"))
		if err != nil || string(got[:1]) != "x" || !bytes.Equal(got[1:], w.data) {
			return fmt.Errorf("get %v: %w", w.rev, err)
		}
		if b := v.Peek(w.rev, len(w.data)); b != nil && !bytes.Equal(b, w.data) {
			return fmt.Errorf("peek %v: %q", w.rev, b)
		}
	}
	for _, w := range want {
		for _, rev := range []kv.Rev{{Main: w.rev.Main, Sub: w.rev.Sub + 1}, {Main: w.rev.Main + 1},
			{Main: w.rev.Main - 1}, {Main: w.rev.Main, Sub: -1}} {
			if _, err := v.Get(rev, nil); !present[rev] && !errors.Is(err, ErrNotFound) {
				return fmt.Errorf("get %v: %v, want ErrNotFound", rev, err)
			}
			if !present[rev] && v.Peek(rev, math.MaxInt) != nil {
				return fmt.Errorf("peek %v: there is no such record", rev)
			}
		}
	}
	for _, n := range []int{1, 4} {
		i := 0
		for _, p := range v.Split(n) {
			defer p.Close()
			for p.Next() {
				if i == len(want) || p.Rev() != want[i].rev ||
					!bytes.Equal(p.Data(), want[i].data) {
					return fmt.Errorf("split %d: record %d is %v", n, i, p.Rev())
				}
				i++
			}
			if p.Err() != nil {
				return fmt.Errorf("split %d: %w", n, p.Err())
			}
		}
		if i != len(want) {
			return fmt.Errorf("split %d: %d records, want %d", n, i, len(want))
		}
	}
	if len(want) > 0 {
		for _, at := range []int{0, len(want) / 3, len(want) - 1} {
			for _, from := range []kv.Rev{want[at].rev,
				{Main: want[at].rev.Main, Sub: want[at].rev.Sub + 1}} {
				i := slices.IndexFunc(want, func(r rec) bool { return !r.rev.Less(from) })
				s := v.Scan(from)
				for i >= 0 && i < min(len(want), at+40) {
					if !s.Next() || s.Rev() != want[i].rev {
						return fmt.Errorf("scan from %v: %v, want %v (%w)", from, s.Rev(),
							want[i].rev, s.Err())
					}
					i++
				}
				s.Close()
			}
		}
	}
	return nil
}

func verifyMeta(l *Log, want map[byte]map[string]string) error {
	for bucket := range byte(4) {
		got := map[string]string{}
		last := ""
		for k, v := range l.Meta(bucket) {
			if last > string(k) {
				return fmt.Errorf("meta %d: %q after %q", bucket, k, last)
			}
			last = string(k)
			got[last] = string(v)
		}
		if w := want[bucket]; !maps.Equal(got, w) {
			return fmt.Errorf("meta %d: %q, want %q", bucket, got, w)
		}
	}
	return nil
}

// verifyLog compares a log without a current batch with the model.
func verifyLog(l *Log, m *model) error {
	if err := verify(l.View(), m.recs()); err != nil {
		return err
	}
	if err := verifyMeta(l, m.meta()); err != nil {
		return err
	}
	b := m.batches[len(m.batches)-1]
	if l.Applied() != b.applied || l.LastRev() != m.last() || l.View().Last() != m.last().Main {
		return fmt.Errorf("applied %v last %v, want %v %v", l.Applied(), l.LastRev(),
			b.applied, m.last())
	}
	return l.Check(tContext)
}

func testOptions(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: "/data/history", SegmentBytes: 8 << 10, ClusterID: 7, MemberID: 9}
}

func seeded(t testing.TB, seed uint64) *rand.Rand {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

func create(t testing.TB, o Options) (*Log, *model) {
	t.Helper()
	meta := []Meta{{Bucket: 1, Key: []byte("k1"), Value: []byte("first")}}
	l, err := Create(o, Applied{Term: 1, Index: 1}, meta)
	if err != nil {
		t.Fatal(err)
	}
	return l, &model{batches: []batch{{metas: meta, applied: Applied{Term: 1, Index: 1}}}}
}

// TestModel writes random batches, closing and opening now and then, and compares.
//
//vigil:norace
func TestModel(t *testing.T) {
	for seed := range uint64(rounds(t, "VIGIL_HISTORY_MODELS", 4)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := seeded(t, seed)
			o := testOptions(memfs.New())
			if seed%3 == 0 {
				o.FS = unmapped{o.FS}
			}
			l, m := create(t, o)
			for i := range 300 {
				b := m.randomBatch(rng, m.last(), uint64(i)+2)
				if err := appendBatch(l, b); err != nil {
					t.Fatal(err)
				}
				if rng.IntN(10) == 0 {
					before := m.recs()
					if err := verify(l.WriterView(), append(before, b.recs...)); err != nil {
						t.Fatalf("writer's view: %v", err)
					}
					if err := verify(l.View(), m.recs()); err != nil {
						t.Fatalf("view during a batch: %v", err)
					}
				}
				if err := l.Commit(b.applied); err != nil {
					t.Fatal(err)
				}
				m.batches = append(m.batches, b)
				switch rng.IntN(20) {
				case 0:
					if a, err := l.Sync(); err != nil || a != b.applied || l.Synced() != a {
						t.Fatal(a, err)
					}
				case 1:
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					var err error
					if l, err = Open(o); err != nil {
						t.Fatal(err)
					}
					if l.Synced() != b.applied {
						t.Fatalf("synced %v after Open, want %v", l.Synced(), b.applied)
					}
				}
				if i%100 == 0 || i == 299 {
					if err := verifyLog(l, m); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestViewStays(t *testing.T) {
	rng := seeded(t, 3)
	l, m := create(t, testOptions(memfs.New()))
	type picture struct {
		v *View
		n int
	}
	var pictures []picture
	for i := range 200 {
		b := m.randomBatch(rng, m.last(), uint64(i)+2)
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b.applied); err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, b)
		if i%20 == 0 {
			pictures = append(pictures, picture{l.View(), len(m.recs())})
		}
	}
	all := m.recs()
	for _, p := range pictures {
		if err := verify(p.v, all[:p.n]); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pictures[9].v.Get(all[0].rev, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("read of a sealed segment after Close: %v, want ErrClosed", err)
	}
	if err := l.Commit(Applied{Term: 100, Index: 1000}); !errors.Is(err, ErrClosed) {
		t.Fatalf("Commit after Close: %v", err)
	}
	if _, err := l.Sync(); !errors.Is(err, ErrClosed) {
		t.Fatalf("Sync after Close: %v", err)
	}
	if err := l.CheckRoom(); !errors.Is(err, ErrClosed) {
		t.Fatalf("CheckRoom after Close: %v", err)
	}
}

func TestExists(t *testing.T) {
	fsys := memfs.New()
	o := testOptions(fsys)
	if ok, err := Exists(fsys, o.Dir); ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := Open(o); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	l, _ := create(t, o)
	if ok, err := Exists(fsys, o.Dir); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := Create(o, Applied{Term: 1, Index: 1}, nil); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	other := o
	other.MemberID = 8
	if _, err := Open(other); !errors.Is(err, ErrIdentity) {
		t.Fatal(err)
	}
	other.ClusterID, other.MemberID = 0, 0
	l, err := Open(other)
	if err != nil {
		t.Fatal(err)
	}
	if c, m := l.Identity(); c != 7 || m != 9 {
		t.Fatal(c, m)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}

func TestOptionsValidate(t *testing.T) {
	o := Options{SegmentBytes: 5}
	err := o.Validate()
	for _, field := range []string{"FS", "Dir", "SegmentBytes"} {
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte("Options."+field)) {
			t.Fatalf("%v does not name %s", err, field)
		}
	}
	if _, err := Open(o); err == nil {
		t.Fatal("Open took bad options")
	}
}

func TestOrder(t *testing.T) {
	l, _ := create(t, testOptions(memfs.New()))
	if _, err := l.AppendKV(kv.Rev{Main: 5}, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, rev := range []kv.Rev{{}, {Main: -1}, {Main: 4}, {Main: 5}, {Main: 6, Sub: -1},
		{Main: 6, Sub: 1 << 40}} {
		if _, err := l.AppendKV(rev, false, nil); err == nil {
			t.Fatalf("%v was taken after 5/0", rev)
		}
	}
	if _, err := l.AppendKV(kv.Rev{Main: 6}, false, make([]byte, format.MaxRecord+1)); err == nil {
		t.Fatal("a huge record was taken")
	}
	if err := l.Commit(Applied{}); err == nil {
		t.Fatal("the position went back")
	}
	if l.Err() == nil {
		t.Fatal("the log lives on")
	}
	<-l.Failed()
	_ = l.Close()
}

// TestLargeBatch writes one revision that is many segments large.
func TestLargeBatch(t *testing.T) {
	o := testOptions(memfs.New())
	l, m := create(t, o)
	for i := range int64(3) {
		b := batch{applied: Applied{Term: 1, Index: uint64(i) + 2}}
		for sub := range int64(6000) {
			b.recs = append(b.recs,
				rec{kv.Rev{Main: i + 2, Sub: sub}, true, fmt.Appendf(nil, "key%d", sub)})
		}
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b.applied); err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, b)
	}
	if err := verify(l.View(), m.recs()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyLog(l, m); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSize(t *testing.T) {
	l, m := create(t, testOptions(memfs.New()))
	rng := seeded(t, 1)
	for i := range 200 {
		b := m.randomBatch(rng, m.last(), uint64(i)+2)
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b.applied); err != nil {
			t.Fatal(err)
		}
		m.batches = append(m.batches, b)
	}
	total, live := l.Size()
	if live > total || live < total/2 || total < 200*format.BatchHeaderSize {
		t.Fatal(total, live)
	}
	// All but the newest segments die, twice over: what is dead is counted once.
	recs := m.recs()
	least := int64(0)
	var dead []DeadRecord
	for _, r := range recs[:len(recs)/2] {
		dead = append(dead, DeadRecord{Rev: r.rev, Tombstone: r.tombstone})
		least += int64(len(r.data) + format.RecordHeaderSize)
	}
	l.work.stop() // nothing is rewritten any more
	for range 2 {
		if err := l.Dead(dead); err != nil {
			t.Fatal(err)
		}
		if _, after := l.Size(); after > live-least || after < live-2*least {
			t.Fatalf("live %d after at least %d of %d died", after, least, live)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
