package pagecount

import (
	"slices"
	"sync"

	"vigil/internal/store/mvcc/keytree"
)

// maxChanges is the number of created and deleted keys after which Drop drops a tree: it bounds the
// memory of the tree's nodes.
const maxChanges = 100_000

// Trees keeps the trees that limited reads of the newest revision have used. When it has Limit
// trees, it replaces the least recently used one. It is safe for concurrent use.
type Trees struct {
	Limit int // keeps none if 0; set before use

	mu struct {
		sync.Mutex
		list []tree
		tick int64
	}
}

// tree is a tree whose counts hold for the revisions from first to last.
type tree struct {
	snapshot    keytree.Snapshot
	first, last int64
	changes     int64
	used        int64
}

// Keep keeps the tree of a commit, whose counts hold for the revisions from first to last. changes
// counts the keys created and deleted up to that commit. It does not keep a tree that holds memory
// which the index no longer uses: such a tree may come from a read that began before DropOutdated.
func (p *Trees) Keep(snapshot keytree.Snapshot, first, last, changes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Limit == 0 || snapshot.Table().Outdated() {
		return
	}
	p.mu.tick++
	oldest := -1
	for i := range p.mu.list {
		q := &p.mu.list[i]
		if q.snapshot.Same(snapshot) {
			q.first, q.last = min(q.first, first), max(q.last, last)
			q.snapshot = snapshot // its table is newer
			q.used = p.mu.tick
			return
		}
		if oldest < 0 || q.used < p.mu.list[oldest].used {
			oldest = i
		}
	}
	n := tree{snapshot: snapshot, first: first, last: last, changes: changes, used: p.mu.tick}
	if len(p.mu.list) < p.Limit {
		p.mu.list = append(p.mu.list, n)
	} else {
		p.mu.list[oldest] = n
	}
}

// Find returns a tree whose counts hold for a revision.
func (p *Trees) Find(at int64) (keytree.Snapshot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.mu.list {
		if q := &p.mu.list[i]; q.first <= at && at <= q.last {
			p.mu.tick++
			q.used = p.mu.tick
			return q.snapshot, true
		}
	}
	return keytree.Snapshot{}, false
}

// Drop drops the trees below the compact revision, and those with too many changes since.
func (p *Trees) Drop(compact, changes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := p.mu.list[:0]
	for _, q := range p.mu.list {
		if q.last >= compact && changes-q.changes <= maxChanges {
			keep = append(keep, q)
		}
	}
	clear(p.mu.list[len(keep):])
	p.mu.list = keep
}

// DropOutdated drops the trees that hold memory which the index no longer uses.
func (p *Trees) DropOutdated() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.list = slices.DeleteFunc(p.mu.list,
		func(q tree) bool { return q.snapshot.Table().Outdated() })
}

// Len returns the number of trees.
func (p *Trees) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.list)
}
