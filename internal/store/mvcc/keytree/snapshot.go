package keytree

import (
	"math/bits"

	"vigil/internal/store/mvcc/slab"
)

// Snapshot is an immutable state of a tree. The zero value is an empty tree.
type Snapshot struct {
	root node
	// tab is the pool's newest table at the time of the state, so it resolves all items.
	tab  *slab.Table
	size int
	live int
}

// Len returns the number of keys, live and dead.
func (s Snapshot) Len() int { return s.size }

// Live returns the number of live keys.
func (s Snapshot) Live() int { return s.live }

// Table returns the table of the items.
func (s Snapshot) Table() *slab.Table { return s.tab }

// WithTable returns the same state with a newer table, which also resolves all its items if none of
// them has been released since.
func (s Snapshot) WithTable(tab *slab.Table) Snapshot {
	s.tab = tab
	return s
}

// Same reports whether both snapshots are one and the same state, and not merely equal.
func (s Snapshot) Same(o Snapshot) bool { return s.root == o.root }

// Get returns the item of key.
func (s Snapshot) Get(key string) (slab.Ref, bool) {
	l := s.leafOf(key)
	if l == nil {
		return 0, false
	}
	i, found := l.get(s.tab, key)
	if !found {
		return 0, false
	}
	return l.refs[i], true
}

// leafOf returns the leaf whose keys enclose key, nil for a zero snapshot.
func (s Snapshot) leafOf(key string) *leaf {
	n := s.root
	for n.inner != nil {
		n = n.inner.kids[n.inner.child(key)]
	}
	return n.leaf
}

// Count returns the number of live keys in [from, to), in time logarithmic in the size of the tree;
// an empty to means no upper bound.
func (s Snapshot) Count(from, to string) int {
	below := s.live
	if to != "" {
		below = s.rank(to)
	}
	return max(below-s.rank(from), 0)
}

// rank returns the number of live keys below key.
func (s Snapshot) rank(key string) int {
	n := s.root
	if n == (node{}) || key == "" {
		return 0
	}
	sum := 0
	for n.inner != nil {
		c := n.inner.child(key)
		for _, l := range n.inner.lives[:c] {
			sum += l
		}
		n = n.inner.kids[c]
	}
	i, _ := n.leaf.find(s.tab, key)
	return sum + bits.OnesCount64(n.leaf.live&(1<<i-1))
}

// maxDepth bounds the inner levels of a tree: one more level takes at least five times as many
// keys. A split leaves each half at least five children, and the tree joins a node with fewer with
// another; only the last node of a level may have fewer.
const maxDepth = 16

// Iterator walks over the keys of a range in ascending order. It starts before the first one.
// Copying it copies the position.
type Iterator struct {
	leaf *leaf
	tab  *slab.Table
	// i is the position in leaf, stop the first one that does not belong to the range.
	i, stop int
	to      string
	depth   int
	stack   [maxDepth]frame
}

// frame is an inner node on the way to the leaf and the child that was taken.
type frame struct {
	n *inner
	i int
}

// Range returns an iterator over the keys of [from, to), live and dead; an empty to means no upper
// bound.
func (s Snapshot) Range(from, to string) Iterator {
	it := Iterator{to: to, tab: s.tab}
	if s.root == (node{}) {
		return it
	}
	n := s.root
	for n.inner != nil {
		c := n.inner.child(from)
		it.stack[it.depth] = frame{n.inner, c}
		it.depth++
		n = n.inner.kids[c]
	}
	i, _ := n.leaf.find(s.tab, from)
	it.enter(n.leaf)
	it.i = i - 1
	return it
}

// enter makes l the current leaf.
func (it *Iterator) enter(l *leaf) {
	it.leaf, it.i = l, -1
	it.stop = int(l.n)
	if it.to != "" && it.stop > 0 && l.key(it.tab, it.stop-1) >= it.to {
		it.stop, _ = l.find(it.tab, it.to)
	}
}

// Next moves to the next key and reports whether there is one.
func (it *Iterator) Next() bool {
	it.i++
	return it.i < it.stop || it.nextLeaf()
}

func (it *Iterator) nextLeaf() bool {
	for it.leaf != nil && it.stop == int(it.leaf.n) {
		for it.depth > 0 && it.stack[it.depth-1].i+1 == int(it.stack[it.depth-1].n.n) {
			it.depth--
		}
		if it.depth == 0 {
			break
		}
		top := &it.stack[it.depth-1]
		top.i++
		n := top.n.kids[top.i]
		for n.inner != nil {
			it.stack[it.depth] = frame{n.inner, 0}
			it.depth++
			n = n.inner.kids[0]
		}
		it.enter(n.leaf)
		if it.stop > 0 {
			it.i = 0
			return true
		}
	}
	it.leaf, it.i, it.stop = nil, 0, 0
	return false
}

// Key returns the current key. It keeps the item's slab in memory: keep a copy, not the key.
func (it *Iterator) Key() string { return it.leaf.key(it.tab, it.i) }

// Ref returns the item of the current key.
func (it *Iterator) Ref() slab.Ref { return it.leaf.refs[it.i] }

// Table returns the table of the items.
func (it *Iterator) Table() *slab.Table { return it.tab }

// Live reports whether the current key is live.
func (it *Iterator) Live() bool { return it.leaf.isLive(it.i) }
