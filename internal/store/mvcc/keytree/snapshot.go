package keytree

import "math/bits"

// Snapshot is an immutable state of a tree. The zero value is an empty one.
type Snapshot[V any] struct {
	root *node[V]
	size int
	live int
}

// Len returns the number of keys, live and dead.
func (s Snapshot[V]) Len() int { return s.size }

// Live returns the number of live keys.
func (s Snapshot[V]) Live() int { return s.live }

// Same reports whether both snapshots are one and the same state, and not merely equal.
func (s Snapshot[V]) Same(o Snapshot[V]) bool { return s.root == o.root }

// Get returns the value of key.
func (s Snapshot[V]) Get(key string) (V, bool) { return get(s.root, key) }

func get[V any](n *node[V], key string) (v V, ok bool) {
	if n == nil {
		return v, false
	}
	for !n.leaf() {
		n = n.kids[n.child(key)]
	}
	i, found := n.find(key, 0)
	if !found {
		return v, false
	}
	return n.vals[i], true
}

// Count returns the number of live keys in [from, to), in time logarithmic in the size of the tree;
// an empty to means without end.
func (s Snapshot[V]) Count(from, to string) int {
	below := s.live
	if to != "" {
		below = s.rank(to)
	}
	return max(below-s.rank(from), 0)
}

// rank returns the number of live keys below key.
func (s Snapshot[V]) rank(key string) int {
	n := s.root
	if n == nil || key == "" {
		return 0
	}
	sum := 0
	for !n.leaf() {
		c := n.child(key)
		for _, l := range n.lives[:c] {
			sum += l
		}
		n = n.kids[c]
	}
	i, _ := n.find(key, 0)
	return sum + bits.OnesCount32(n.live&(1<<i-1))
}

// maxDepth bounds the levels of a tree: one more takes sixteen times as many keys.
const maxDepth = 16

// Iterator walks over the keys of a range in ascending order. It starts before the first one.
// Copying it copies the position.
type Iterator[V any] struct {
	leaf *node[V]
	// i is the position in leaf, stop the first one that does not belong to the range.
	i, stop int
	to      string
	depth   int
	stack   [maxDepth]frame[V]
}

// frame is an inner node on the way to the leaf and the child that was taken.
type frame[V any] struct {
	n *node[V]
	i int
}

// Range returns an iterator over the keys of [from, to), live and dead; an empty to means without
// end.
func (s Snapshot[V]) Range(from, to string) Iterator[V] {
	it := Iterator[V]{to: to}
	if s.root == nil {
		return it
	}
	n := s.root
	for !n.leaf() {
		c := n.child(from)
		it.stack[it.depth] = frame[V]{n, c}
		it.depth++
		n = n.kids[c]
	}
	i, _ := n.find(from, 0)
	it.enter(n)
	it.i = i - 1
	return it
}

// enter makes n the leaf that is walked over.
func (it *Iterator[V]) enter(n *node[V]) {
	it.leaf, it.i = n, -1
	it.stop = len(n.keys)
	if it.to != "" && it.stop > 0 && n.keys[it.stop-1] >= it.to {
		it.stop, _ = n.find(it.to, 0)
	}
}

// Next moves to the next key and reports whether there is one.
func (it *Iterator[V]) Next() bool {
	it.i++
	return it.i < it.stop || it.nextLeaf()
}

func (it *Iterator[V]) nextLeaf() bool {
	for it.leaf != nil && it.stop == len(it.leaf.keys) {
		for it.depth > 0 && it.stack[it.depth-1].i+1 == len(it.stack[it.depth-1].n.kids) {
			it.depth--
		}
		if it.depth == 0 {
			break
		}
		top := &it.stack[it.depth-1]
		top.i++
		n := top.n.kids[top.i]
		for !n.leaf() {
			it.stack[it.depth] = frame[V]{n, 0}
			it.depth++
			n = n.kids[0]
		}
		it.enter(n)
		if it.stop > 0 {
			it.i = 0
			return true
		}
	}
	it.leaf, it.i, it.stop = nil, 0, 0
	return false
}

// Key returns the present key.
func (it *Iterator[V]) Key() string { return it.leaf.keys[it.i] }

// Value returns the value of the present key.
func (it *Iterator[V]) Value() V { return it.leaf.vals[it.i] }

// Live reports whether the present key is live.
func (it *Iterator[V]) Live() bool { return it.leaf.isLive(it.i) }
