package mvcc

import (
	"sync"

	"vigil/internal/store/mvcc/keytree"
)

// pinChanges is the number of keys made and deleted since a state after which it is not kept any
// longer: it bounds the memory that pinned nodes take.
const pinChanges = 100_000

// pins keeps the trees that limited reads of the newest revision have seen, so that the pages that
// follow at that revision are counted by rank. The least recently used one makes room.
type pins struct {
	limit int

	mu struct {
		sync.Mutex
		list []pin
		tick int64
	}
}

// pin is a tree whose counts hold for the revisions from first to last.
type pin struct {
	tree        keytree.Snapshot[*entry]
	first, last int64
	changes     int64
	used        int64
}

// add keeps the tree of v, which must be the state of a commit.
func (p *pins) add(v *view) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit == 0 {
		return
	}
	p.mu.tick++
	oldest := -1
	for i := range p.mu.list {
		q := &p.mu.list[i]
		if q.tree.Same(v.tree) {
			q.first, q.last = min(q.first, v.live), max(q.last, v.rev)
			q.used = p.mu.tick
			return
		}
		if oldest < 0 || q.used < p.mu.list[oldest].used {
			oldest = i
		}
	}
	n := pin{tree: v.tree, first: v.live, last: v.rev, changes: v.changes, used: p.mu.tick}
	if len(p.mu.list) < p.limit {
		p.mu.list = append(p.mu.list, n)
	} else {
		p.mu.list[oldest] = n
	}
}

// find returns a tree whose counts hold for revision at.
func (p *pins) find(at int64) (keytree.Snapshot[*entry], bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.mu.list {
		if q := &p.mu.list[i]; q.first <= at && at <= q.last {
			p.mu.tick++
			q.used = p.mu.tick
			return q.tree, true
		}
	}
	return keytree.Snapshot[*entry]{}, false
}

// drop lets go of what nobody can ask for any more and of what has grown too old.
func (p *pins) drop(compact, changes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := p.mu.list[:0]
	for _, q := range p.mu.list {
		if q.last >= compact && changes-q.changes <= pinChanges {
			keep = append(keep, q)
		}
	}
	clear(p.mu.list[len(keep):])
	p.mu.list = keep
}

func (p *pins) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.list)
}
