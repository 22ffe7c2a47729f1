package mvcc

import (
	"testing"

	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/pagecount"
)

// TestTreesKeepNoOldTable: a read that takes long keeps its tree after others have kept the same one with a newer table, or after the
// outdated trees were dropped. What the older table keeps in memory does not stay.
func TestTreesKeepNoOldTable(t *testing.T) {
	x := index.New()
	pool := x.Pool
	x.Add("key")
	old := x.Tree.Snapshot()
	// A large allocation has a slab of its own, so that another table takes the place of this one when it is released.
	const large = 1 << 16
	b, _ := pool.Block(large)
	pool.Release(b, large)
	if !old.Table().Outdated() {
		t.Fatal("the table is the newest")
	}
	now := old.WithTable(pool.Table())

	trees := &pagecount.Trees{Limit: 2}
	trees.Keep(now, 1, 5, 0)
	trees.Keep(old, 1, 3, 0)
	if s, ok := trees.Find(4); !ok || s.Table() != now.Table() {
		t.Errorf("found %v, with the newest table: %v", ok, s.Table() == now.Table())
	}
	trees = &pagecount.Trees{Limit: 2}
	trees.DropOutdated()
	trees.Keep(old, 1, 3, 0)
	if n := trees.Len(); n > 0 {
		t.Errorf("%d trees are kept with an outdated table", n)
	}
}
