package keytree

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"vigil/internal/store/mvcc/slab"
)

// bed is a tree whose items have one word, a number.
type bed struct {
	*Tree
	pool *slab.Pool
}

const (
	width    = leafWidth
	itemSize = 1
)

func newBed() *bed {
	pool := slab.NewPool()
	return &bed{New(pool), pool}
}

func newItem(pool *slab.Pool, key string, v int) slab.Ref {
	ref, words := pool.Item(key, itemSize)
	words[0] = uint64(v)
	return ref
}

// set gives a key a value and a state, in place of those it may have.
func (b *bed) set(key string, v int, live bool) {
	old, ok := b.Get(key)
	ref := newItem(b.pool, key, v)
	if !ok {
		b.Insert(ref, live)
		return
	}
	b.Replace(ref)
	b.SetLive(key, live)
	b.pool.Release(old, slab.ItemWords(len(key), itemSize))
}

// remove deletes a key and its item.
func (b *bed) remove(key string) bool {
	old, _ := b.Get(key)
	ok := b.Delete(key)
	if ok {
		b.pool.Release(old, slab.ItemWords(len(key), itemSize))
	}
	return ok
}

func valueOf(s Snapshot, ref slab.Ref) int { return int(s.Table().Item(ref)[0]) }

// valid checks the invariants of the package comment.
func valid(t testing.TB, tr *Tree) {
	t.Helper()
	tab := tr.View().Table()
	leafDepth, size := -1, 0
	last, any := "", false
	bounds := func(key string, skip int32, head uint64, peer, low, high string) {
		if !hasPrefix(key, peer, int(skip)) || head != headOf(key[skip:]) {
			t.Fatalf("key %q: skip %d, head %x", key, skip, head)
		}
		if key < low || high != "" && key >= high {
			t.Fatalf("key %q out of [%q, %q)", key, low, high)
		}
	}
	var walk func(n node, depth int, low, high string) int
	walkLeaf := func(l *leaf, depth int, low, high string) int {
		if l.gen > tr.gen {
			t.Fatalf("a leaf of generation %d in a tree of generation %d", l.gen, tr.gen)
		}
		if leafDepth < 0 {
			leafDepth = depth
		}
		if depth != leafDepth || l.n > leafWidth || l.live>>l.n != 0 {
			t.Fatalf("a leaf of %d keys, live %b, at depth %d; another at depth %d", l.n, l.live, depth, leafDepth)
		}
		for i := range int(l.n) {
			k := l.key(tab, i)
			bounds(k, l.skip, l.heads[i], l.key(tab, 0), low, high)
			if any && k <= last {
				t.Fatalf("key %q after %q", k, last)
			}
			last, any = k, true
		}
		size += int(l.n)
		return bits.OnesCount64(l.live)
	}
	walk = func(n node, depth int, low, high string) int {
		if n.leaf != nil {
			return walkLeaf(n.leaf, depth, low, high)
		}
		in := n.inner
		if in.gen > tr.gen || in.n == 0 || in.n > innerWidth {
			t.Fatalf("a node of %d children of generation %d in a tree of generation %d", in.n, in.gen, tr.gen)
		}
		sum := 0
		for i := range int(in.n) {
			lo, hi := low, high
			if i > 0 {
				lo = in.seps[i]
				bounds(lo, in.skip, in.heads[i], in.seps[1], low, high)
			}
			if i+1 < int(in.n) {
				hi = in.seps[i+1]
			}
			l := walk(in.kids[i], depth+1, lo, hi)
			if l != in.lives[i] {
				t.Fatalf("%d live keys counted as %d", l, in.lives[i])
			}
			sum += l
		}
		return sum
	}
	live := walk(tr.root, 0, "", "")
	if live != tr.live || size != tr.size {
		t.Fatalf("live %d, size %d; counted %d, %d", tr.live, tr.size, live, size)
	}
}

type item struct {
	val  int
	live bool
}

// model is the dumb counterpart: a plain map.
type model map[string]item

func (m model) keys(from, to string) []string {
	var ks []string
	for k := range m {
		if k >= from && (to == "" || k < to) {
			ks = append(ks, k)
		}
	}
	sort.Strings(ks)
	return ks
}

func compare(t testing.TB, m model, s Snapshot, from, to string) {
	t.Helper()
	keys, live := m.keys(from, to), 0
	it := s.Range(from, to)
	for _, k := range keys {
		if !it.Next() {
			t.Fatalf("[%q, %q) ends before %q", from, to, k)
		}
		if it.Key() != k || valueOf(s, it.Ref()) != m[k].val || it.Live() != m[k].live {
			t.Fatalf("got %q=%d live=%v, want %q=%+v", it.Key(), valueOf(s, it.Ref()), it.Live(), k, m[k])
		}
		if m[k].live {
			live++
		}
	}
	if it.Next() {
		t.Fatalf("[%q, %q) has the key %q too many", from, to, it.Key())
	}
	if it.Next() {
		t.Fatal("an iterator goes on after its end")
	}
	if got := s.Count(from, to); got != live {
		t.Fatalf("[%q, %q) has %d live keys, counted %d", from, to, live, got)
	}
}

func randomKey(rng *rand.Rand, space int) string {
	n := rng.IntN(space)
	switch rng.IntN(4) {
	case 0:
		return fmt.Sprintf("/registry/pods/default/%06d", n)
	case 1:
		return fmt.Sprintf("/registry/pods/%d/x", n)
	case 2: // keys that are prefixes of one another and differ in trailing zeros
		return "/z"[:1+n%2] + string(make([]byte, n%13))
	default:
		var b [5]byte
		for i := range b {
			b[i] = byte(rng.IntN(3)) * 127
		}
		return string(b[:1+n%5])
	}
}

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

func TestRandom(t *testing.T) {
	rng := seed(t)
	type saved struct {
		m model
		s Snapshot
	}
	for round := range 12 {
		space := []int{40, 400, 4000}[round%3]
		tr, m := newBed(), model{}
		if round%4 == 1 {
			for n := range rng.IntN(3000) {
				m[randomKey(rng, space)] = item{n, n%3 > 0}
			}
			keys := m.keys("", "")
			refs := make([]slab.Ref, len(keys))
			for i, k := range keys {
				refs[i] = newItem(tr.pool, k, m[k].val)
			}
			b := NewBuilder(tr.pool)
			for i, k := range keys {
				b.Add(refs[i], m[k].live)
			}
			tr.Tree = b.Tree()
			valid(t, tr.Tree)
		}
		var snaps []saved
		grow := 5
		for step := range 3000 {
			if step%500 == 0 {
				grow = 2 + rng.IntN(7)
			}
			k := randomKey(rng, space)
			switch r := rng.IntN(12); {
			case r < grow:
				it := item{step, rng.IntN(2) == 0}
				tr.set(k, it.val, it.live)
				m[k] = it
			case r < 10:
				_, want := m[k]
				if got := tr.remove(k); got != want {
					t.Fatalf("deleting %q: %v, want %v", k, got, want)
				}
				delete(m, k)
			default:
				live := rng.IntN(2) == 0
				tr.SetLive(k, live)
				if it, ok := m[k]; ok {
					m[k] = item{it.val, live}
				}
			}
			ref, ok := tr.Get(k)
			if it, want := m[k]; ok != want || ok && valueOf(tr.View(), ref) != it.val {
				t.Fatalf("get %q: %v, want %d %v", k, ok, it.val, want)
			}
			if step%100 == 99 {
				valid(t, tr.Tree)
				from, to := randomKey(rng, space), randomKey(rng, space)
				compare(t, m, tr.View(), from, to)
				compare(t, m, tr.View(), "", "")
				compare(t, m, tr.View(), from, "")
			}
			if rng.IntN(200) == 0 {
				c := model{}
				for k, v := range m {
					c[k] = v
				}
				snaps = append(snaps, saved{c, tr.Snapshot()})
			}
		}
		for _, s := range snaps {
			compare(t, s.m, s.s, "", "")
			compare(t, s.m, s.s, randomKey(rng, space), randomKey(rng, space))
			if s.s.Len() != len(s.m) {
				t.Fatalf("a snapshot of %d keys says %d", len(s.m), s.s.Len())
			}
		}
		for _, k := range m.keys("", "") {
			if !tr.remove(k) {
				t.Fatalf("%q is gone", k)
			}
		}
		valid(t, tr.Tree)
		if tr.Len() != 0 || tr.Live() != 0 {
			t.Fatalf("an emptied tree has %d keys, %d live", tr.Len(), tr.Live())
		}
	}
}

func TestAscendingAndDescending(t *testing.T) {
	for _, down := range []bool{false, true} {
		tr, m := newBed(), model{}
		for i := range 5000 {
			n := i
			if down {
				n = 5000 - i
			}
			k := fmt.Sprintf("%08d", n)
			tr.set(k, i, true)
			m[k] = item{i, true}
		}
		valid(t, tr.Tree)
		compare(t, m, tr.View(), "", "")
		for i, k := range m.keys("", "") {
			if i%10 > 0 {
				tr.remove(k)
				delete(m, k)
			}
		}
		valid(t, tr.Tree)
		compare(t, m, tr.View(), "", "")
	}
}

// TestConcurrentReaders is for the race detector: snapshots are read while the tree changes.
func TestConcurrentReaders(t *testing.T) {
	tr := newBed()
	for i := range 2000 {
		tr.set(strconv.Itoa(i), i, true)
	}
	var wg sync.WaitGroup
	for range 50 {
		s := tr.Snapshot()
		wg.Go(func() {
			n, live := 0, 0
			for it := s.Range("", ""); it.Next(); n++ {
				if it.Live() {
					live++
				}
			}
			if n != s.Len() || live != s.Count("", "") || live != s.Live() {
				t.Errorf("%d keys, %d live; the snapshot says %d, %d", n, live, s.Len(), s.Live())
			}
		})
		for i := range 100 {
			tr.set(strconv.Itoa(i*31), i, i%2 == 0)
			tr.remove(strconv.Itoa(i * 17))
		}
	}
	wg.Wait()
}

// TestBoundsKeepNoItem: the bounds of nodes do not hold on to the memory of items that are no longer in the tree.
func TestBoundsKeepNoItem(t *testing.T) {
	tr := newBed()
	key := func(i int) string { return strings.Repeat("k", i%300) + strconv.Itoa(i) }
	var old []weak.Pointer[uint64]
	for i := range 3000 {
		tr.set(key(i), i, true)
		if i%100 == 0 {
			ref, _ := tr.Get(key(i))
			old = append(old, weak.Make(&tr.View().Table().Item(ref)[0]))
		}
	}
	for i := range 3000 {
		tr.set(key(i), i, true)
	}
	left := len(old)
	for deadline := time.Now().Add(time.Minute); left > 3 && time.Now().Before(deadline); {
		runtime.GC()
		left = 0
		for i := range old {
			if old[i].Value() != nil {
				left++
			}
		}
	}
	// Old and new items share the slab that was open in between.
	if left > 3 {
		t.Errorf("%d items of %d are still held", left, len(old))
	}
	valid(t, tr.Tree)
}

func TestZeroSnapshot(t *testing.T) {
	var s Snapshot
	if _, ok := s.Get("a"); ok || s.Count("", "") != 0 || s.Len() != 0 {
		t.Fatal("the zero snapshot is not empty")
	}
	it := s.Range("", "")
	if it.Next() {
		t.Fatal("the zero snapshot has a key")
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte("a\x00b\xffc"), "a")
	f.Fuzz(func(t *testing.T, raw []byte, key string) {
		var keys []string
		for len(raw) > 0 && len(keys) < width {
			n := min(1+int(raw[0]%11), len(raw))
			keys = append(keys, string(raw[:n]))
			raw = raw[n:]
		}
		pool := slab.NewPool()
		l := &leaf{gen: 1}
		sorted := func() (sorted []string) {
			for i := range int(l.n) {
				sorted = append(sorted, l.key(pool.Table(), i))
			}
			return sorted
		}
		for i, k := range keys {
			at, found := l.find(pool.Table(), k)
			if found != slices.Contains(sorted(), k) {
				t.Fatalf("%q in %q: %v", k, sorted(), found)
			}
			if !found {
				ref := newItem(pool, k, i)
				l.insert(pool.Table(), at, k, ref, true)
			}
		}
		want, found := slices.BinarySearch(sorted(), key)
		if i, ok := l.find(pool.Table(), key); i != want || ok != found {
			t.Fatalf("%q in %q: %d %v, want %d %v", key, sorted(), i, ok, want, found)
		}
		if i, ok := l.get(pool.Table(), key); ok != found || ok && i != want {
			t.Fatalf("get %q in %q: %d %v, want %d %v", key, sorted(), i, ok, want, found)
		}
	})
}

// TestNodesAreFilled adds keys in orders that split nodes at their ends again and again. maxDepth, and the memory of a key, depend
// on the least number of keys in a node.
func TestNodesAreFilled(t *testing.T) {
	tr := newBed()
	n := 0
	set := func(key string) {
		tr.set(key, n, true)
		n++
	}
	last := "m"
	for range 20 {
		// A leaf that is filled in ascending order, and then keys between its last key and all others.
		for i := 0; ; i++ {
			k := fmt.Sprintf("%s\xff%04d\x00", last, i)
			set(k)
			if l := tr.View().leafOf(k); l.n == leafWidth && l.key(tr.pool.Table(), leafWidth-1) == k || i == 3*leafWidth {
				last = k
				break
			}
		}
		for i := range 200 {
			// The bound between them is the whole new key, so that the next one belongs to the full leaf too.
			set(last[:len(last)-1] + string([]byte{byte(255 - i)}))
		}
	}
	valid(t, tr.Tree)
	leaves, inners := 0, 0
	var walk func(nd node)
	walk = func(nd node) {
		if nd.leaf != nil {
			leaves++
			return
		}
		inners++
		for _, kid := range nd.inner.kids[:nd.inner.n] {
			walk(kid)
		}
	}
	walk(tr.root)
	if n < 8*leaves || leaves < 5*inners {
		t.Errorf("%d keys in %d leaves and %d inner nodes", n, leaves, inners)
	}
}
