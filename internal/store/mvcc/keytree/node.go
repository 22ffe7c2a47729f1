package keytree

import (
	"math/bits"
	"strings"
)

// width is the largest number of keys in a leaf and of children in an inner node. A change of the
// key set copies one node per level, so width trades the price of that against the depth.
const width = 32

// minFill is the number of keys or children below which a node is joined with a neighbour.
const minFill = width / 3

// node is a leaf (kids is nil) or an inner node. Its slices alias arrays of the same allocation.
type node[V any] struct {
	// gen is the generation of the tree that made the node and may still write it.
	gen uint64
	// skip and heads let find decide most comparisons without following a key's pointer.
	skip  int
	heads []uint64
	// keys are the keys of a leaf, or for an inner node the lower bounds of its children.
	keys []string

	// Leaves only: the values, and a bit for each live key.
	vals []V
	live uint32

	// Inner nodes only: the children and the number of live keys below each.
	kids  []*node[V]
	lives []int
}

func newLeaf[V any](gen uint64) *node[V] {
	b := new(struct {
		node[V]
		heads [width]uint64
		keys  [width]string
		vals  [width]V
	})
	n := &b.node
	n.gen = gen
	n.heads, n.keys, n.vals = b.heads[:0], b.keys[:0], b.vals[:0]
	return n
}

func newInner[V any](gen uint64) *node[V] {
	b := new(struct {
		node[V]
		heads [width]uint64
		keys  [width]string
		kids  [width]*node[V]
		lives [width]int
	})
	n := &b.node
	n.gen = gen
	n.heads, n.keys, n.kids, n.lives = b.heads[:0], b.keys[:0], b.kids[:0], b.lives[:0]
	return n
}

func (n *node[V]) leaf() bool { return n.kids == nil }

// like returns an empty node of n's kind.
func (n *node[V]) like(gen uint64) *node[V] {
	if n.leaf() {
		return newLeaf[V](gen)
	}
	return newInner[V](gen)
}

func (n *node[V]) clone(gen uint64) *node[V] {
	c := n.like(gen)
	c.skip, c.live = n.skip, n.live
	c.heads = append(c.heads, n.heads...)
	c.keys = append(c.keys, n.keys...)
	c.vals = append(c.vals, n.vals...)
	c.kids = append(c.kids, n.kids...)
	c.lives = append(c.lives, n.lives...)
	return c
}

// liveKeys returns the number of live keys at and below n.
func (n *node[V]) liveKeys() int {
	if n.leaf() {
		return bits.OnesCount32(n.live)
	}
	sum := 0
	for _, l := range n.lives {
		sum += l
	}
	return sum
}

func (n *node[V]) isLive(i int) bool { return n.live&(1<<i) != 0 }

// headOf reads the first eight bytes of s as a number that orders as they do.
func headOf(s string) uint64 {
	if len(s) >= 8 {
		return uint64(s[0])<<56 | uint64(s[1])<<48 | uint64(s[2])<<40 | uint64(s[3])<<32 |
			uint64(s[4])<<24 | uint64(s[5])<<16 | uint64(s[6])<<8 | uint64(s[7])
	}
	var h uint64
	for i := 0; i < len(s); i++ {
		h |= uint64(s[i]) << (56 - 8*i)
	}
	return h
}

// find returns the position of the first key at or above key, and whether it is key. Positions
// below from are known to be lower.
func (n *node[V]) find(key string, from int) (int, bool) {
	hi := len(n.keys)
	if from >= hi {
		return hi, false
	}
	if n.skip > 0 {
		if len(key) < n.skip || key[:n.skip] != n.keys[from][:n.skip] {
			if key < n.keys[from] {
				return from, false
			}
			return hi, false
		}
	}
	h := headOf(key[n.skip:])
	lo := from
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if n.heads[m] < h {
			lo = m + 1
		} else {
			hi = m
		}
	}
	// Keys with the same head follow each other; the rest of them decides. Few nodes have more
	// than one such key, so a walk is as good as a search.
	for ; lo < len(n.keys) && n.heads[lo] == h; lo++ {
		if c := strings.Compare(n.keys[lo], key); c >= 0 {
			return lo, c == 0
		}
	}
	return lo, false
}

// child returns the position of the child of an inner node whose keys enclose key.
func (n *node[V]) child(key string) int {
	i, found := n.find(key, 1)
	if !found {
		i--
	}
	return i
}

// reindex recomputes skip and heads after keys of another node, or a key without the prefix, were
// added. The lowest bound of an inner node is left out: it is never compared and need not resemble the
// others.
func (n *node[V]) reindex() {
	first := 0
	if !n.leaf() {
		first = 1
	}
	n.skip = 0
	if first < len(n.keys) {
		n.skip = commonPrefix(n.keys[first], n.keys[len(n.keys)-1])
	}
	n.heads = n.heads[:len(n.keys)]
	for i := first; i < len(n.keys); i++ {
		n.heads[i] = headOf(n.keys[i][n.skip:])
	}
}

// insertKey puts key at position i of keys and heads.
func (n *node[V]) insertKey(i int, key string) {
	n.keys = insertAt(n.keys, i, key)
	n.heads = insertAt(n.heads, i, 0)
	peer := i - 1
	if i+1 < len(n.keys) {
		peer = i + 1
	}
	if peer < 0 || !n.leaf() && peer == 0 {
		n.reindex()
		return
	}
	if len(key) < n.skip || key[:n.skip] != n.keys[peer][:n.skip] {
		n.reindex()
		return
	}
	n.heads[i] = headOf(key[n.skip:])
}

func (n *node[V]) insertItem(i int, key string, v V, live bool) {
	n.insertKey(i, key)
	n.vals = insertAt(n.vals, i, v)
	low := uint32(1)<<i - 1
	n.live = n.live&low | n.live&^low<<1
	if live {
		n.live |= 1 << i
	}
}

func (n *node[V]) insertKid(i int, key string, kid *node[V]) {
	n.insertKey(i, key)
	n.kids = insertAt(n.kids, i, kid)
	n.lives = insertAt(n.lives, i, kid.liveKeys())
}

func (n *node[V]) removeAt(i int) {
	n.keys = deleteAt(n.keys, i)
	n.heads = deleteAt(n.heads, i)
	if n.leaf() {
		n.vals = deleteAt(n.vals, i)
		low := uint32(1)<<i - 1
		n.live = n.live&low | n.live>>1&^low
		return
	}
	n.kids = deleteAt(n.kids, i)
	n.lives = deleteAt(n.lives, i)
	if i == 0 {
		// What was the second bound is no longer looked at.
		n.reindex()
	}
}

// moveTail moves the keys from position i on to the end of dst. Both must be writable.
func (n *node[V]) moveTail(i int, dst *node[V]) {
	if n.leaf() {
		dst.live |= n.live >> i << len(dst.keys)
		n.live &= 1<<i - 1
		dst.vals = append(dst.vals, n.vals[i:]...)
		clear(n.vals[i:])
		n.vals = n.vals[:i]
	} else {
		dst.kids = append(dst.kids, n.kids[i:]...)
		dst.lives = append(dst.lives, n.lives[i:]...)
		clear(n.kids[i:])
		n.kids, n.lives = n.kids[:i], n.lives[:i]
	}
	dst.keys = append(dst.keys, n.keys[i:]...)
	clear(n.keys[i:])
	n.keys, n.heads = n.keys[:i], n.heads[:i]
	n.reindex()
	dst.reindex()
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func insertAt[T any](s []T, i int, v T) []T {
	s = s[:len(s)+1]
	copy(s[i+1:], s[i:])
	s[i] = v
	return s
}

func deleteAt[T any](s []T, i int) []T {
	copy(s[i:], s[i+1:])
	clear(s[len(s)-1:])
	return s[:len(s)-1]
}
