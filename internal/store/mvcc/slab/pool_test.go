package slab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"weak"
)

func seed(t testing.TB) *rand.Rand {
	s := rand.Uint64()
	if env := os.Getenv("VIGIL_SEED"); env != "" {
		var err error
		if s, err = strconv.ParseUint(env, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("VIGIL_SEED=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

// thing is an allocation of the model.
type thing struct {
	ref  Ref
	key  string // of an item
	n    int    // words, after the key of an item
	mark uint64
	// gone is the number of released words, from the end.
	gone int
}

func (x *thing) words() int {
	if x.key == "" {
		return x.n
	}
	return ItemWords(len(x.key), x.n)
}

// check compares the thing with its memory, as a table resolves it.
func (x *thing) check(t testing.TB, tab *Table) {
	t.Helper()
	w := tab.Words(x.ref)
	if x.key != "" {
		if k := tab.Key(x.ref); k != x.key {
			t.Fatalf("%#x has the key %q, want %q", x.ref, k, x.key)
		}
		if w = tab.Item(x.ref); len(w) != x.n {
			t.Fatalf("%#x has %d words, want %d", x.ref, len(w), x.n)
		}
	}
	for i, v := range w[:x.n] {
		if v != x.mark+uint64(i) {
			t.Fatalf("word %d of %#x is %#x, want %#x", i, x.ref, v, x.mark+uint64(i))
		}
	}
}

// world is a pool with its model.
type world struct {
	t    testing.TB
	pool *Pool
	all  []*thing
	seen map[Ref]bool
	mark uint64
}

func newWorld(t testing.TB) *world {
	p := NewPool()
	p.CleanFrom = 64
	return &world{t: t, pool: p, seen: map[Ref]bool{}}
}

func (w *world) allocate(key string, n int) *thing {
	w.mark += 1 << 32
	x := &thing{key: key, n: n, mark: w.mark}
	var mem []uint64
	if key != "" {
		x.ref, mem = w.pool.Item(key, n)
	} else {
		x.ref, mem = w.pool.Block(n)
	}
	if len(mem) != n || cap(mem) != n {
		w.t.Fatalf("%d words allocated, %d returned with room for %d", n, len(mem), cap(mem))
	}
	for i := range mem {
		if mem[i] != 0 {
			w.t.Fatalf("new memory is not zero: %#x", mem[i])
		}
		mem[i] = x.mark + uint64(i)
	}
	if x.ref == 0 || w.seen[x.ref] {
		w.t.Fatalf("the ref %#x is none or not unique", x.ref)
	}
	w.seen[x.ref] = true
	w.all = append(w.all, x)
	return x
}

// release releases the last n words of a thing that are left.
func (w *world) release(i, n int) {
	x := w.all[i]
	x.gone += n
	w.pool.Release(x.ref, n)
	if x.gone == x.words() {
		w.all[i] = w.all[len(w.all)-1]
		w.all = w.all[:len(w.all)-1]
	}
}

// clean empties the victims, as a user does.
func (w *world) clean() {
	if !w.pool.Wanted() || !w.pool.BeginClean() {
		return
	}
	for i := len(w.all) - 1; i >= 0; i-- {
		x := w.all[i]
		if !w.pool.Victim(x.ref) {
			continue
		}
		if x.gone == 0 {
			w.allocate(x.key, x.n)
		}
		w.release(i, x.words()-x.gone)
	}
	if left := w.pool.EndClean(); left != 0 {
		w.t.Fatalf("%d slabs were not emptied", left)
	}
}

func (w *world) check() {
	w.t.Helper()
	used := 0
	for _, x := range w.all {
		used += x.words() - x.gone
		if x.gone == 0 {
			x.check(w.t, w.pool.Table())
		}
	}
	if _, got := w.pool.Size(); got != used {
		w.t.Fatalf("%d words are in use, the pool says %d", used, got)
	}
}

// step does one operation. size and pick choose.
func (w *world) step(op, size, pick int) {
	switch {
	case op < 4:
		w.allocate("", 1+size%40)
	case op < 7:
		w.allocate(strings.Repeat("k", 1+size%70), size%9)
	case op == 7:
		w.allocate("", 100+size%9000)
	case op < 13 && len(w.all) > 0:
		x := w.all[pick%len(w.all)]
		w.release(pick%len(w.all), x.words()-x.gone)
	case op < 15 && len(w.all) > 0:
		x := w.all[pick%len(w.all)]
		w.release(pick%len(w.all), 1+size%(x.words()-x.gone))
	case op == 15:
		w.clean()
	}
}

// TestRandom allocates, releases and cleans at random. Tables from before see everything that was there, and what came later.
func TestRandom(t *testing.T) {
	rng := seed(t)
	for range 8 {
		w := newWorld(t)
		type saved struct {
			tab *Table
			all []thing
		}
		var old []saved
		for step := range 4000 {
			w.step(rng.IntN(16), rng.IntN(1<<20), rng.IntN(1<<20))
			if step%200 == 0 {
				w.check()
				s := saved{tab: w.pool.Table()}
				for _, x := range w.all {
					if x.gone == 0 {
						s.all = append(s.all, *x)
					}
				}
				old = append(old, s)
			}
		}
		for i := range old {
			for j := range old[i:] {
				for _, x := range old[i+j].all {
					x.check(t, old[i].tab)
				}
			}
		}
		for len(w.all) > 0 {
			w.release(0, w.all[0].words()-w.all[0].gone)
		}
		w.clean()
		w.check()
		if total, _ := w.pool.Size(); total > 2*maxSlab {
			t.Errorf("an emptied pool has %d words", total)
		}
	}
}

func FuzzPool(f *testing.F) {
	f.Add([]byte("\x00abc\x09abc\x0fabc"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		w := newWorld(t)
		first := w.pool.Table()
		keep := []thing{*w.allocate("first", 3)}
		for len(ops) >= 4 {
			w.step(int(ops[0]%16), int(ops[1])<<8|int(ops[2]), int(ops[3]))
			ops = ops[4:]
			if len(w.all) > 0 && w.all[len(w.all)-1].gone == 0 {
				keep = append(keep, *w.all[len(w.all)-1])
			}
		}
		w.check()
		for i := range keep {
			keep[i].check(t, first) // the first table leads to everything that came after it
		}
	})
}

// TestSlotReuse: a slot that is used again is another slab to a new ref and the old one to an old ref, also for a reader with a
// table from the time of the old one.
func TestSlotReuse(t *testing.T) {
	w := newWorld(t)
	a := *w.allocate("", 1000)
	tab := w.pool.Table()
	refs := []thing{a}
	for range 100 {
		w.release(0, 1000)
		refs = append(refs, *w.allocate("", 1000))
	}
	if n := len(w.pool.mu.slots); n > 2 {
		t.Fatalf("%d slots for a slab at a time", n)
	}
	for i := range refs {
		refs[i].check(t, tab)
	}
	if !tab.Outdated() || w.pool.Table().Outdated() {
		t.Error("the old table is the newest, or the newest is not")
	}
	mustPanic(t, func() { w.pool.Table().Words(a.ref) })
	mustPanic(t, func() { w.pool.Release(a.ref, 1) })
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("a ref that is not valid is accepted")
		}
	}()
	f()
}

// TestGenerationsEnd: a slot is given up before its generations begin again.
func TestGenerationsEnd(t *testing.T) {
	w := newWorld(t)
	w.allocate("", 1000)
	w.release(0, 1000)
	w.pool.mu.slots[0].gen = maxGen - 2
	for range 10 {
		x := w.allocate("", 1000)
		x.check(t, w.pool.Table())
		w.release(0, 1000)
	}
	if got := w.pool.mu.slots[0].gen; got != maxGen {
		t.Errorf("slot 0 is at generation %d, want the last, %d", got, maxGen)
	}
	if n := len(w.pool.mu.slots); n != 2 {
		t.Errorf("%d slots, want another one", n)
	}
}

// TestSlotsEnd: the table ends before the slot no longer fits into a ref.
func TestSlotsEnd(t *testing.T) {
	w := newWorld(t)
	w.pool.slotLimit = 3
	for range 3 {
		w.allocate("", 1000)
	}
	mustPanic(t, func() { w.pool.Block(1000) })
	for _, slot := range []uint32{0, 1, maxSlots - 1} {
		for _, gen := range []uint32{1, maxGen} {
			for _, word := range []int{0, maxSlab - 1} {
				if r := newRef(gen, slot, word); r.gen() != gen || r.slot() != slot || r.word() != word {
					t.Errorf("%d %d %d is %#x, which is %d %d %d", gen, slot, word, r, r.gen(), r.slot(), r.word())
				}
			}
		}
	}
}

// TestKeys: keys of every length, also one larger than a shared slab.
func TestKeys(t *testing.T) {
	w := newWorld(t)
	for n := range 70 {
		w.allocate(strings.Repeat("\xff", n+1), 2)
	}
	for range 3 {
		w.allocate(strings.Repeat("long", 1<<18), 7)
	}
	w.check()
	ref, mem := w.pool.Item("", 2)
	mem[0] = 5
	if k, m := w.pool.Table().Key(ref), w.pool.Table().Item(ref); k != "" || len(m) != 2 || m[0] != 5 {
		t.Errorf("the item without a key has %q and %v", k, m)
	}
}

// TestRemovedSlabIsFreed: memory returns to the garbage collector when the slab is removed and no table from before is left.
func TestRemovedSlabIsFreed(t *testing.T) {
	w := newWorld(t)
	tab, mem := func() (*Table, weak.Pointer[uint64]) {
		x := w.allocate("", 100_000)
		return w.pool.Table(), weak.Make(&w.pool.Table().Words(x.ref)[0])
	}()
	w.release(0, 100_000)
	runtime.GC()
	if mem.Value() == nil {
		t.Error("a table has lost its slab")
	}
	runtime.KeepAlive(tab)
	tab = nil
	for mem.Value() != nil {
		runtime.GC()
	}
}

// TestPlateau replaces what is there again and again: the pool stays at 3/2 of it and a few slabs.
func TestPlateau(t *testing.T) {
	rng := seed(t)
	w := newWorld(t)
	for range 3000 {
		w.allocate("key", rng.IntN(40))
	}
	for step := range 40_000 {
		i := rng.IntN(len(w.all))
		w.release(i, w.all[i].words())
		w.allocate("key", rng.IntN(40))
		if step%50 == 0 {
			w.clean()
			if total, used := w.pool.Size(); total > used*3/2+4*maxSlab/8 {
				t.Fatalf("%d words, %d in use", total, used)
			}
		}
	}
	if n := len(w.pool.mu.slots); n > 500 {
		t.Errorf("%d slots", n)
	}
}

// TestReaders is for the race detector: readers hold tables and refs while slabs are removed and their slots used again.
func TestReaders(t *testing.T) {
	w := newWorld(t)
	rng := seed(t)
	var wg sync.WaitGroup
	for step := range 5000 {
		w.step(rng.IntN(16), rng.IntN(1<<20), rng.IntN(1<<20))
		if step%200 == 0 {
			tab := w.pool.Table()
			var all []thing
			for _, x := range w.all {
				if x.gone == 0 {
					all = append(all, *x)
				}
			}
			wg.Go(func() {
				for range 3 {
					for i := range all {
						all[i].check(t, tab)
					}
				}
			})
		}
	}
	wg.Wait()
}

// TestArenas: arenas allocate side by side.
func TestArenas(t *testing.T) {
	p := NewPool()
	var wg sync.WaitGroup
	refs := make([][]Ref, 8)
	for g := range refs {
		wg.Go(func() {
			a := p.NewArena()
			for i := range 3000 {
				ref, words := a.Item(fmt.Sprintf("%d/%d", g, i), 1+i%50)
				words[0] = uint64(i)
				refs[g] = append(refs[g], ref)
			}
			a.Seal()
		})
	}
	wg.Wait()
	seen, used := map[Ref]bool{}, 0
	for g := range refs {
		for i, ref := range refs[g] {
			key := fmt.Sprintf("%d/%d", g, i)
			if seen[ref] || p.Table().Key(ref) != key || p.Table().Item(ref)[0] != uint64(i) {
				t.Fatalf("item %q is %q", key, p.Table().Key(ref))
			}
			seen[ref] = true
			used += ItemWords(len(key), 1+i%50)
		}
	}
	if _, got := p.Size(); got != used {
		t.Errorf("%d words are in use, the pool says %d", used, got)
	}
}
