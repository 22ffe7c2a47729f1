package keytree

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tidwall/btree"
)

const benchKeys = 1 << 20

func benchKey(i int) string {
	return fmt.Sprintf("/registry/pods/namespace-%03d/pod-%08x", i%100, uint32(i)*2654435761)
}

type benchItem struct {
	key string
	val *int
}

func benchTrees() (*bed, *btree.BTreeG[benchItem], []string) {
	tr := newBed()
	bt := btree.NewBTreeGOptions(func(a, b benchItem) bool { return a.key < b.key }, btree.Options{NoLocks: true})
	keys := make([]string, benchKeys)
	for i := range keys {
		keys[i] = benchKey(i)
		tr.set(keys[i], i, true)
		bt.Set(benchItem{keys[i], new(int)})
	}
	return tr, bt, keys
}

// BenchmarkTree compares with the B-tree of github.com/tidwall/btree on a million keys.
func BenchmarkTree(b *testing.B) {
	tr, bt, keys := benchTrees()
	rng := rand.New(rand.NewPCG(1, 2))
	b.Run("get/keytree", func(b *testing.B) {
		for b.Loop() {
			if _, ok := tr.Get(keys[rng.IntN(benchKeys)]); !ok {
				b.Fatal("absent")
			}
		}
	})
	b.Run("get/tidwall", func(b *testing.B) {
		for b.Loop() {
			if _, ok := bt.Get(benchItem{key: keys[rng.IntN(benchKeys)]}); !ok {
				b.Fatal("absent")
			}
		}
	})
	b.Run("scan500/keytree", func(b *testing.B) {
		s := tr.Snapshot()
		for b.Loop() {
			n := 0
			for it := s.Range(keys[rng.IntN(benchKeys)], ""); n < 500 && it.Next(); n++ {
				_ = it.Ref()
			}
		}
	})
	b.Run("scan500/tidwall", func(b *testing.B) {
		for b.Loop() {
			n := 0
			bt.Ascend(benchItem{key: keys[rng.IntN(benchKeys)]}, func(benchItem) bool { n++; return n < 500 })
		}
	})
	b.Run("count/keytree", func(b *testing.B) {
		for b.Loop() {
			_ = tr.View().Count(keys[rng.IntN(benchKeys)], "")
		}
	})
	v := new(int)
	// One new key and one removed per snapshot, then 64 of each: what a commit costs.
	for _, batch := range []int{1, 64} {
		b.Run(fmt.Sprintf("churn%d/keytree", batch), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = tr.Snapshot()
				for range batch {
					k := keys[rng.IntN(benchKeys)]
					tr.remove(k)
					tr.set(k, 1, true)
				}
			}
		})
		b.Run(fmt.Sprintf("churn%d/tidwall", batch), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = bt.Copy()
				for range batch {
					k := benchItem{keys[rng.IntN(benchKeys)], v}
					bt.Delete(k)
					bt.Set(k)
				}
			}
		})
	}
}
