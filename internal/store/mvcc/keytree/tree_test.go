package keytree

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"sync"
	"testing"
)

// valid checks the invariants of the package comment.
func valid[V any](t testing.TB, tr *Tree[V]) {
	t.Helper()
	leafDepth, size := -1, 0
	last, any := "", false
	var walk func(n *node[V], depth int, low, high string) int
	walk = func(n *node[V], depth int, low, high string) int {
		if n.gen > tr.gen {
			t.Fatalf("a node of generation %d in a tree of generation %d", n.gen, tr.gen)
		}
		if len(n.heads) != len(n.keys) || len(n.keys) > width {
			t.Fatalf("%d heads, %d keys", len(n.heads), len(n.keys))
		}
		first := 0
		if !n.leaf() {
			first = 1
		}
		for i := first; i < len(n.keys); i++ {
			k := n.keys[i]
			if k[:n.skip] != n.keys[first][:n.skip] || n.heads[i] != headOf(k[n.skip:]) {
				t.Fatalf("key %q: skip %d, head %x", k, n.skip, n.heads[i])
			}
			if k < low || high != "" && k >= high {
				t.Fatalf("key %q out of [%q, %q)", k, low, high)
			}
		}
		if n.leaf() {
			if leafDepth < 0 {
				leafDepth = depth
			}
			if depth != leafDepth {
				t.Fatalf("leaves at depths %d and %d", depth, leafDepth)
			}
			if len(n.vals) != len(n.keys) || n.live>>len(n.keys) != 0 {
				t.Fatalf("%d values, %d keys, live %b", len(n.vals), len(n.keys), n.live)
			}
			for _, k := range n.keys {
				if any && k <= last {
					t.Fatalf("key %q after %q", k, last)
				}
				last, any = k, true
			}
			size += len(n.keys)
			return bits.OnesCount32(n.live)
		}
		if len(n.kids) != len(n.keys) || len(n.lives) != len(n.keys) || len(n.kids) == 0 {
			t.Fatalf("%d keys, %d children, %d counts", len(n.keys), len(n.kids), len(n.lives))
		}
		sum := 0
		for i, kid := range n.kids {
			lo, hi := low, high
			if i > 0 {
				lo = n.keys[i]
			}
			if i+1 < len(n.kids) {
				hi = n.keys[i+1]
			}
			l := walk(kid, depth+1, lo, hi)
			if l != n.lives[i] {
				t.Fatalf("%d live keys counted as %d", l, n.lives[i])
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

func compare(t testing.TB, m model, s Snapshot[int], from, to string) {
	t.Helper()
	keys, live := m.keys(from, to), 0
	it := s.Range(from, to)
	for _, k := range keys {
		if !it.Next() {
			t.Fatalf("[%q, %q) ends before %q", from, to, k)
		}
		if it.Key() != k || it.Value() != m[k].val || it.Live() != m[k].live {
			t.Fatalf("got %q=%d live=%v, want %q=%+v", it.Key(), it.Value(), it.Live(), k, m[k])
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
		s Snapshot[int]
	}
	for round := range 12 {
		space := []int{40, 400, 4000}[round%3]
		tr, m := New[int](), model{}
		if round%4 == 1 {
			var b Builder[int]
			for n := range rng.IntN(3000) {
				m[randomKey(rng, space)] = item{n, n%3 > 0}
			}
			for _, k := range m.keys("", "") {
				b.Add(k, m[k].val, m[k].live)
			}
			tr = b.Tree()
			valid(t, tr)
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
				tr.Set(k, it.val, it.live)
				m[k] = it
			case r < 10:
				_, want := m[k]
				if got := tr.Delete(k); got != want {
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
			v, ok := tr.Get(k)
			if it, want := m[k]; ok != want || v != it.val {
				t.Fatalf("get %q: %d %v, want %d %v", k, v, ok, it.val, want)
			}
			if step%100 == 99 {
				valid(t, tr)
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
			if !tr.Delete(k) {
				t.Fatalf("%q is gone", k)
			}
		}
		valid(t, tr)
		if tr.Len() != 0 || tr.Live() != 0 {
			t.Fatalf("an emptied tree has %d keys, %d live", tr.Len(), tr.Live())
		}
	}
}

func TestAscendingAndDescending(t *testing.T) {
	for _, down := range []bool{false, true} {
		tr, m := New[int](), model{}
		for i := range 5000 {
			n := i
			if down {
				n = 5000 - i
			}
			k := fmt.Sprintf("%08d", n)
			tr.Set(k, i, true)
			m[k] = item{i, true}
		}
		valid(t, tr)
		compare(t, m, tr.View(), "", "")
		for i, k := range m.keys("", "") {
			if i%10 > 0 {
				tr.Delete(k)
				delete(m, k)
			}
		}
		valid(t, tr)
		compare(t, m, tr.View(), "", "")
	}
}

// TestConcurrentReaders is for the race detector: snapshots are read while the tree changes.
func TestConcurrentReaders(t *testing.T) {
	tr := New[int]()
	for i := range 2000 {
		tr.Set(strconv.Itoa(i), i, true)
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
			tr.Set(strconv.Itoa(i*31), i, i%2 == 0)
			tr.Delete(strconv.Itoa(i * 17))
		}
	}
	wg.Wait()
}

func TestZeroSnapshot(t *testing.T) {
	var s Snapshot[int]
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
		n := newLeaf[int](1)
		for i, k := range keys {
			at, found := n.find(k, 0)
			if found != slices.Contains(n.keys, k) {
				t.Fatalf("%q in %q: %v", k, n.keys, found)
			}
			if !found {
				n.insertItem(at, k, i, true)
			}
		}
		want, found := slices.BinarySearch(n.keys, key)
		if i, ok := n.find(key, 0); i != want || ok != found {
			t.Fatalf("%q in %q: %d %v, want %d %v", key, n.keys, i, ok, want, found)
		}
	})
}
