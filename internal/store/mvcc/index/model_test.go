package index

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"vigil/internal/kv"
	"vigil/internal/store/mvcc/keytree"
	"vigil/internal/store/mvcc/slab"
)

// modelChange is a change with what it made: version 0 is a deletion.
type modelChange struct {
	rev             kv.Rev
	create, version int64
}

// model is the dumb counterpart of an index: all changes of each key.
type model map[string][]modelChange

// at returns the key as it was at a revision.
func (m model) at(key string, revision int64) (s State, ok bool) {
	for _, c := range m[key] {
		if c.rev.Main <= revision {
			s, ok = State{c.rev, c.create, c.version}, c.version > 0
		}
	}
	if !ok {
		s = State{}
	}
	return s, ok
}

// needless returns how many of the changes of a key a compaction drops.
func (m model) needless(key string, compact int64) int {
	n := 0
	for i, c := range m[key] {
		if c.rev.Main <= compact {
			n = i
			if c.version == 0 {
				n++
			}
		}
	}
	return n
}

func (m model) clone() model {
	c := model{}
	for k, list := range m {
		c[k] = slices.Clone(list)
	}
	return c
}

// world is an index with its model.
type world struct {
	t   testing.TB
	x   *Index
	m   model
	rev int64
	// compact is that of the last compaction; leases are those of the keys.
	compact int64
	leases  map[string]int64
}

func newWorld(t testing.TB, x *Index) *world {
	x.Pool.CleanFrom = 64
	return &world{t: t, x: x, m: model{}, rev: 1, compact: -1, leases: map[string]int64{}}
}

// put puts a key; it is undone at once if undo is set.
func (w *world) put(key string, undo bool) {
	e, known := w.x.Get(key)
	s, exists := State{}, false
	if known {
		s, exists = e.Newest()
	}
	w.rev++
	c := modelChange{kv.Rev{Main: w.rev}, w.rev, 1}
	switch {
	case exists:
		c.create, c.version = s.Create, s.Version+1
	case known:
		w.x.Tree.SetLive(key, true)
	default:
		e = w.x.Add(key)
	}
	w.x.Append(e, NewPut(c.rev, c.version))
	if undo {
		w.x.Undo(key, e)
		if known && !exists {
			w.x.Tree.SetLive(key, false)
		}
		return
	}
	w.m[key] = append(w.m[key], c)
	e.SetLease(w.rev)
	w.leases[key] = w.rev
}

func (w *world) delete(key string, undo bool) {
	e, ok := w.x.Get(key)
	if ok {
		_, ok = e.Newest()
	}
	if !ok {
		return
	}
	w.rev++
	c := kv.Rev{Main: w.rev}
	w.x.Append(e, NewTombstone(c))
	if undo {
		w.x.Undo(key, e)
		return
	}
	w.x.Tree.SetLive(key, false)
	e.SetLease(0)
	w.leases[key] = 0
	w.m[key] = append(w.m[key], modelChange{rev: c})
}

// trim drops what a compaction makes needless.
func (w *world) trim(compact int64) {
	w.compact = max(w.compact, compact)
	var keys []string
	for it := w.x.Tree.View().Range("", ""); it.Next(); {
		keys = append(keys, strings.Clone(it.Key()))
	}
	for _, key := range keys {
		e, _ := w.x.Get(key)
		k := e.Changes().Needless(w.compact)
		if want := w.m.needless(key, w.compact); k != want {
			w.t.Fatalf("%d changes of %q are needless at %d, want %d", k, key, w.compact, want)
		}
		w.m[key] = w.m[key][k:]
		switch {
		case k == e.Changes().Len():
			w.x.Drop(key, e)
			delete(w.m, key)
		case k > 0:
			w.x.Cut(e, k)
		}
	}
}

// clean empties the victims. between is called between two keys.
func (w *world) clean(between func()) {
	if !w.x.Pool.Wanted() || !w.x.Pool.BeginClean() {
		return
	}
	from := ""
	for {
		it := w.x.Tree.View().Range(from, "")
		if !it.Next() {
			break
		}
		from = strings.Clone(it.Key()) + "\x00"
		if e := At(&it); w.x.InVictim(e) {
			w.x.Evacuate(e)
		}
		between()
	}
	if left := w.x.Pool.EndClean(); left > 0 {
		w.t.Fatalf("%d slabs were not emptied", left)
	}
}

// saved is a snapshot with what it must show.
type saved struct {
	tree keytree.Snapshot
	m    model
	rev  int64
	// compact is that of the last compaction when the snapshot is read.
	compact *int64
}

func (w *world) save() saved {
	return saved{tree: w.x.Tree.Snapshot(), m: w.m.clone(), rev: w.rev, compact: &w.compact}
}

// check reads all keys of a snapshot at each of some revisions. Errors, so that any goroutine may call it.
func (s saved) check(compact int64, revisions ...int64) error {
	for _, at := range revisions {
		if at < compact || at > s.rev {
			continue
		}
		live, n := 0, 0
		for it := s.tree.Range("", ""); it.Next(); n++ {
			key := strings.Clone(it.Key())
			want, ok := s.m.at(key, at)
			if got, found := At(&it).At(at); found != ok || got != want {
				return fmt.Errorf("%q at %d, compacted at %d: %+v %v, want %+v %v", key, at, compact, got, found, want, ok)
			}
			if _, ok := s.m.at(key, s.rev); ok != it.Live() {
				return fmt.Errorf("%q is live: %v, want %v", key, it.Live(), ok)
			}
			if it.Live() {
				live++
			}
			if e, ok := Of(s.tree, key); !ok || e.ref != it.Ref() {
				return fmt.Errorf("%q is not found", key)
			}
		}
		if n != len(s.m) || s.tree.Live() != live || s.tree.Count("", "") != live {
			return fmt.Errorf("%d keys, %d live of %d; counted %d", n, live, len(s.m), s.tree.Count("", ""))
		}
	}
	return nil
}

// check checks the index, and invariant 3.
func (w *world) check() {
	w.t.Helper()
	s := saved{tree: w.x.Tree.View(), m: w.m, rev: w.rev}
	if err := s.check(w.compact, w.rev, (w.rev+w.compact)/2, w.compact); err != nil {
		w.t.Fatal(err)
	}
	want := 0
	for it := s.tree.Range("", ""); it.Next(); {
		e := At(&it)
		if e.Lease() != w.leases[it.Key()] {
			w.t.Fatalf("%q has the lease %d, want %d", it.Key(), e.Lease(), w.leases[it.Key()])
		}
		want += slab.ItemWords(len(it.Key()), entryHead) + blockWords(e.block().cap())
	}
	if _, used := w.x.Pool.Size(); used != want {
		w.t.Fatalf("%d words are used by entries, the pool says %d", want, used)
	}
}

func testKey(n int) string {
	if n%17 == 0 {
		return strings.Repeat("long", 40) + fmt.Sprint(n)
	}
	return fmt.Sprintf("/key/%04d", n)
}

// step does one operation.
func (w *world) step(op, key, n int) {
	switch k := testKey(key); {
	case op < 12:
		w.put(k, op == 0)
	case op < 18:
		w.delete(k, op == 12)
	case op == 18:
		for range n % 60 { // a long list of changes
			w.put(k, false)
		}
	case op == 19 && n%4 == 0:
		w.trim(w.rev - int64(n%100))
	case op == 20:
		w.clean(func() {})
	case op == 21:
		w.clean(func() { w.put(testKey(int(w.rev)%600), false) })
	}
}

// TestRandom changes, trims and cleans an index at random, and reads snapshots of any age.
func TestRandom(t *testing.T) {
	rng := seed(t)
	for range 6 {
		w := newWorld(t, New())
		var old []saved
		space := 20 + rng.IntN(400)
		for step := range 4000 {
			w.step(rng.IntN(22), rng.IntN(space), rng.IntN(1000))
			if step%100 == 0 {
				w.check()
				old = append(old, w.save())
				s := old[rng.IntN(len(old))]
				if err := s.check(w.compact, s.rev, w.compact, s.rev-rng.Int64N(50)); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.check()
		w.m = model{}
		for it := w.x.Tree.Snapshot().Range("", ""); it.Next(); {
			e, _ := w.x.Get(it.Key())
			w.x.Drop(strings.Clone(it.Key()), e)
		}
		w.check()
		w.x.Pool.BeginClean()
		if total, used := w.x.Pool.Size(); total > 0 || used > 0 {
			t.Errorf("an emptied index has %d words, %d of them used", total, used)
		}
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("\x01aa\x0eaa\x13a\x04\x14aa\x12a\x3b\x14aa"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		w := newWorld(t, New())
		w.put("first", false)
		old := []saved{w.save()}
		for n := 0; len(ops) >= 3; n++ {
			w.step(int(ops[0])%22, int(ops[1]), int(ops[2]))
			ops = ops[3:]
			if n%8 == 0 && len(old) < 100 {
				old = append(old, w.save())
			}
		}
		w.check()
		for _, s := range old {
			if err := s.check(w.compact, s.rev, w.compact); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestReaders is for the race detector: snapshots are read while entries move and slabs are removed and used again.
func TestReaders(t *testing.T) {
	rng := seed(t)
	w := newWorld(t, New())
	var wg sync.WaitGroup
	var compact atomic.Int64
	compact.Store(-1)
	for step := range 2000 {
		op := rng.IntN(22)
		if op == 19 {
			// A reader looks at the compact revision after it has read the index.
			compact.Store(w.rev)
			w.trim(w.rev)
			continue
		}
		w.step(op, rng.IntN(150), 1)
		if step%20 != 0 {
			continue
		}
		s := w.save()
		wg.Go(func() {
			for range 5 {
				err := s.check(-1, s.rev)
				if compact.Load() > s.rev {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestBuilder: an index that is built equals one that was filled change by change.
func TestBuilder(t *testing.T) {
	rng := seed(t)
	b := NewBuilder()
	w := &world{t: t, m: model{}, rev: 1, compact: -1, leases: map[string]int64{}}
	type made struct {
		ref  Ref
		live bool
	}
	keys := map[string]made{}
	section := b.NewSection()
	for k := range 700 {
		key, n := testKey(k), 1+rng.IntN(30)
		ref, list := section.Entry(key, int64(k), 7, n)
		var create, version int64
		for i := range n {
			w.rev++
			rev := kv.Rev{Main: w.rev}
			if version > 0 && rng.IntN(4) == 0 {
				create, version = 0, 0
				list.Set(i, NewTombstone(rev))
			} else {
				if version++; version == 1 {
					create = w.rev
				}
				if i == 0 {
					create, version = 7, 3 // of a generation that began before
				}
				list.Set(i, NewPut(rev, version))
			}
			w.m[key] = append(w.m[key], modelChange{rev, create, version})
		}
		keys[key] = made{ref, version > 0}
		w.leases[key] = int64(k)
	}
	section.Finish()
	sorted := make([]string, 0, len(keys))
	for k := range keys {
		sorted = append(sorted, k)
	}
	slices.Sort(sorted)
	for _, k := range sorted {
		b.Add(keys[k].ref, keys[k].live)
	}
	w.x = b.Index()
	w.x.Pool.CleanFrom = 64
	w.check()
	for range 3000 {
		w.step(rng.IntN(22), rng.IntN(800), rng.IntN(1000))
	}
	w.check()
	if x := NewBuilder().Index(); x.Tree.Len() != 0 {
		t.Error("an index of nothing has keys")
	}
}

// TestMemoryReturns: what deleted keys took is given back, however few keys are left between them.
func TestMemoryReturns(t *testing.T) {
	w := newWorld(t, New())
	const n = 30_000
	for i := range n {
		w.put(testKey(i), false)
	}
	e, _ := w.x.Get(testKey(1))
	gone := weak.Make(&e.words[0])
	e = Entry{}
	full, _ := w.x.Pool.Size()
	for i := range n {
		if i%100 > 0 {
			w.delete(testKey(i), false)
		}
	}
	w.trim(w.rev)
	w.clean(func() {})
	w.check()
	if total, used := w.x.Pool.Size(); total > full/40 || total > 2*used {
		t.Errorf("%d words of %d are left, %d of them in use", total, full, used)
	}
	for gone.Value() != nil {
		runtime.GC()
	}
}

// TestChurnPlateau: keys come and go, and old ones change, for a long time. The pool and its table stay as large as they were.
//
//vigil:norace
func TestChurnPlateau(t *testing.T) {
	rng := seed(t)
	w := newWorld(t, New())
	for i := range 500 {
		w.put(fmt.Sprintf("old/%d", i), false)
	}
	most, late := 0, 0
	for cycle := range 300 {
		for i := range 200 {
			w.put(fmt.Sprintf("new/%d/%d", cycle, i), false)
			w.put(fmt.Sprintf("old/%d", rng.IntN(500)), false)
			if cycle > 0 {
				w.delete(fmt.Sprintf("new/%d/%d", cycle-1, i), false)
			}
		}
		w.trim(w.rev)
		w.clean(func() {})
		total, used := w.x.Pool.Size()
		if total > 3*used {
			t.Fatalf("%d words in cycle %d, %d in use", total, cycle, used)
		}
		if cycle < 100 {
			most = max(most, total)
		} else {
			late = max(late, total)
		}
	}
	if late > most*5/4 {
		t.Errorf("%d words, after at most %d in the first third", late, most)
	}
	w.check()
}

// TestUndoPlateau: changes that are undone leave memory behind, which a cleaning takes back without a compaction.
func TestUndoPlateau(t *testing.T) {
	w := newWorld(t, New())
	for i := range 100 {
		w.put(testKey(i), false)
	}
	for i := range 20_000 {
		w.put(testKey(i%100), true)
		w.put("absent", true)
		w.clean(func() {})
		if total, used := w.x.Pool.Size(); total > 3*used {
			t.Fatalf("%d words after %d changes that were undone, %d in use", total, i, used)
		}
	}
	w.check()
}
