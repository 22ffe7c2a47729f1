package interval

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A model of a Tree that looks at every interval.
type span struct{ lo, hi string }

type model map[span]int

func (m model) stab(key string) []int {
	var in []span
	for s := range m {
		if s.lo <= key && (s.hi == Unbounded || key < s.hi) {
			in = append(in, s)
		}
	}
	slices.SortFunc(in, func(a, b span) int {
		switch {
		case a == b:
			return 0
		case a.lo < b.lo, a.lo == b.lo && b.hi == Unbounded, a.lo == b.lo && a.hi != Unbounded && a.hi < b.hi:
			return -1
		}
		return 1
	})
	var out []int
	for _, s := range in {
		out = append(out, m[s])
	}
	return out
}

func randomKey(rng *rand.Rand) string {
	b := make([]byte, rng.IntN(4))
	for i := range b {
		b[i] = byte(rng.IntN(5)) * 60
	}
	return string(b)
}

func randomSpan(rng *rand.Rand) (span, bool) {
	s := span{randomKey(rng), randomKey(rng)}
	return s, s.hi == Unbounded || s.lo < s.hi
}

func TestAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	var tree Tree[int]
	m := model{}
	for i := range 20_000 {
		s, ok := randomSpan(rng)
		if !ok {
			continue
		}
		grow := i/2000%2 == 0
		if grow == (rng.IntN(4) > 0) {
			tree.Insert(s.lo, s.hi, i)
			m[s] = i
		} else {
			_, had := m[s]
			delete(m, s)
			if got := tree.Delete(s.lo, s.hi); got != had {
				t.Fatalf("step %d: Delete(%q, %q) = %v, want %v", i, s.lo, s.hi, got, had)
			}
		}
		if tree.Len() != len(m) {
			t.Fatalf("step %d: Len %d, want %d", i, tree.Len(), len(m))
		}
		want, has := m[s]
		if got, ok := tree.Find(s.lo, s.hi); got != want || ok != has {
			t.Fatalf("step %d: Find(%q, %q) = %d, %v, want %d, %v", i, s.lo, s.hi, got, ok, want, has)
		}
		if i%64 != 0 {
			continue
		}
		if err := tree.Valid(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		for range 8 {
			key := randomKey(rng)
			if got, want := tree.Stab([]byte(key), nil), m.stab(key); !slices.Equal(got, want) {
				t.Fatalf("step %d: Stab(%q) = %v, want %v", i, key, got, want)
			}
		}
	}
}

func TestEmptyIntervalPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var tree Tree[int]
	tree.Insert("b", "b", 0)
}

// visits counts the nodes that a Stab of key visits.
func (n *node[V]) visits(key []byte) int {
	if n == nil {
		return 0
	}
	if ends(n.reach, key) {
		return 1
	}
	c := 1 + n.left.visits(key)
	if string(key) < n.lo {
		return c
	}
	return c + n.right.visits(key)
}

// shapes are ways in which many intervals overlap.
var shapes = map[string]func(i, n int) (lo, hi string){
	"nested":   func(i, n int) (string, string) { return num(i), num(2*n - i) },
	"chain":    func(i, n int) (string, string) { return num(i), num(i + n/10) },
	"prefixes": func(i, n int) (string, string) { return num(i), num(i + 1) },
	"one end":  func(i, n int) (string, string) { return num(i), num(2 * n) },
	"no end":   func(i, n int) (string, string) { return num(i), Unbounded },
}

func num(i int) string { return fmt.Sprintf("/registry/pods/%09d", i) }

func TestStabVisitsFewNodes(t *testing.T) {
	for name, shape := range shapes {
		n := 10_000
		if name == "nested" { // where the search tree has the least to go by
			n = 100_000
		}
		t.Run(name, func(t *testing.T) {
			var tree Tree[int]
			for _, i := range rand.New(rand.NewPCG(7, 7)).Perm(n) {
				lo, hi := shape(i, n)
				tree.Insert(lo, hi, i)
			}
			if err := tree.Valid(); err != nil {
				t.Fatal(err)
			}
			for _, at := range []int{-1, 0, 1, 17, n / 2, n - 1, n, 2*n - 1, 2 * n, 3 * n} {
				key := []byte(num(max(at, 0)))
				if at < 0 {
					key = []byte("/a")
				}
				k := len(tree.Stab(key, nil))
				limit := min(n, 3*(k+1)*bits.Len(uint(n)))
				if got := tree.root.visits(key); got > limit {
					t.Errorf("a stab at %q that finds %d visits %d nodes, want at most %d", key, k, got, limit)
				}
			}
		})
	}
}

func BenchmarkStab(b *testing.B) {
	const n = 100_000
	for name, shape := range shapes {
		if name == "nested" || name == "no end" || name == "one end" {
			continue // a key in the middle is in half of them
		}
		b.Run(name, func(b *testing.B) {
			var tree Tree[int]
			for i := range n {
				lo, hi := shape(i, n)
				tree.Insert(lo, hi, i)
			}
			keys := make([][]byte, 1024)
			for i := range keys {
				keys[i] = []byte(num(i * n / len(keys) / 100))
			}
			var dst []int
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				dst = tree.Stab(keys[i%len(keys)], dst[:0])
			}
		})
	}
}
