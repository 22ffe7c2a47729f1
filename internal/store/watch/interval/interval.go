// Package interval is an ordered set of half-open intervals of keys that answers which of them
// contain a key.
//
// The set is a height-balanced (AVL) search tree over (low bound, high bound) in which every node
// also carries the greatest high bound of its subtree, so that whole subtrees that end before the
// key are skipped. With n intervals in the set, k of which contain the key:
//
//   - Insert, Delete and Find cost O(log n);
//   - Stab costs O(min(n, (k+1) log n)), however much the intervals overlap each other.
//
// Invariants, checked by Valid:
//
//	I1. An in-order walk yields strictly increasing (low, high) pairs; Unbounded is the greatest high.
//	I2. The heights of a node's children differ by at most one.
//	I3. A node's reach is the greatest high bound in its subtree.
//	I4. Every interval is non-empty: low < high.
//
// A Tree is not safe for concurrent use, except for concurrent reads.
package interval

import (
	"errors"
	"fmt"
)

// Unbounded as a high bound means that the interval has no end. It differs from every other bound
// because a non-empty interval never ends at the empty string.
const Unbounded = ""

// Tree maps intervals to values. The zero value is an empty tree.
type Tree[V any] struct {
	root *node[V]
	n    int
}

type node[V any] struct {
	lo, hi      string
	reach       string // greatest hi of the subtree
	left, right *node[V]
	height      int
	value       V
}

// Len returns the number of intervals.
func (t *Tree[V]) Len() int { return t.n }

// Find returns the value of the interval [lo, hi).
func (t *Tree[V]) Find(lo, hi string) (V, bool) {
	for n := t.root; n != nil; {
		switch c := order(lo, hi, n); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n.value, true
		}
	}
	var zero V
	return zero, false
}

// Insert adds the interval [lo, hi), or replaces its value if the tree has it. It panics if the
// interval is empty.
func (t *Tree[V]) Insert(lo, hi string, v V) {
	if hi != Unbounded && lo >= hi {
		panic(fmt.Sprintf("interval: empty interval [%q, %q)", lo, hi))
	}
	t.root = t.insert(t.root, lo, hi, v)
}

// Delete removes the interval [lo, hi) and reports whether it existed.
func (t *Tree[V]) Delete(lo, hi string) bool {
	was := t.n
	t.root = t.remove(t.root, lo, hi)
	return t.n < was
}

// Stab appends to dst the values of all intervals that contain key, in the order of (low, high),
// and returns it.
func (t *Tree[V]) Stab(key []byte, dst []V) []V {
	return t.root.stab(key, dst)
}

func (n *node[V]) stab(key []byte, dst []V) []V {
	for n != nil {
		if ends(n.reach, key) {
			return dst
		}
		dst = n.left.stab(key, dst)
		if string(key) < n.lo {
			return dst
		}
		if !ends(n.hi, key) {
			dst = append(dst, n.value)
		}
		n = n.right
	}
	return dst
}

// ends reports whether an interval with high bound hi ends at or before key.
func ends(hi string, key []byte) bool {
	return hi != Unbounded && hi <= string(key)
}

func lessHi(a, b string) bool {
	if a == Unbounded || b == Unbounded {
		return a != Unbounded
	}
	return a < b
}

// order compares (lo, hi) with the interval of n.
func order[V any](lo, hi string, n *node[V]) int {
	switch {
	case lo < n.lo:
		return -1
	case lo > n.lo:
		return 1
	case hi == n.hi:
		return 0
	case lessHi(hi, n.hi):
		return -1
	}
	return 1
}

func (t *Tree[V]) insert(n *node[V], lo, hi string, v V) *node[V] {
	if n == nil {
		t.n++
		return &node[V]{lo: lo, hi: hi, reach: hi, height: 1, value: v}
	}
	switch c := order(lo, hi, n); {
	case c < 0:
		n.left = t.insert(n.left, lo, hi, v)
	case c > 0:
		n.right = t.insert(n.right, lo, hi, v)
	default:
		n.value = v
		return n
	}
	return n.balance()
}

func (t *Tree[V]) remove(n *node[V], lo, hi string) *node[V] {
	if n == nil {
		return nil
	}
	switch c := order(lo, hi, n); {
	case c < 0:
		n.left = t.remove(n.left, lo, hi)
	case c > 0:
		n.right = t.remove(n.right, lo, hi)
	default:
		t.n--
		if n.left == nil {
			return n.right
		}
		if n.right == nil {
			return n.left
		}
		right, next := n.right.takeFirst()
		next.left, next.right = n.left, right
		n = next
	}
	return n.balance()
}

// takeFirst unlinks the first node of the subtree and returns the rest and that node.
func (n *node[V]) takeFirst() (rest, first *node[V]) {
	if n.left == nil {
		return n.right, n
	}
	n.left, first = n.left.takeFirst()
	return n.balance(), first
}

func (n *node[V]) high() int {
	if n == nil {
		return 0
	}
	return n.height
}

// update recomputes the height and reach of n from its children.
func (n *node[V]) update() {
	n.height = 1 + max(n.left.high(), n.right.high())
	n.reach = n.hi
	if n.left != nil && lessHi(n.reach, n.left.reach) {
		n.reach = n.left.reach
	}
	if n.right != nil && lessHi(n.reach, n.right.reach) {
		n.reach = n.right.reach
	}
}

// balance restores I2 and I3 at n, whose children satisfy them, and returns the subtree's new root.
func (n *node[V]) balance() *node[V] {
	switch d := n.left.high() - n.right.high(); {
	case d > 1:
		if n.left.left.high() < n.left.right.high() {
			n.left = n.left.rotateLeft()
		}
		return n.rotateRight()
	case d < -1:
		if n.right.right.high() < n.right.left.high() {
			n.right = n.right.rotateRight()
		}
		return n.rotateLeft()
	}
	n.update()
	return n
}

func (n *node[V]) rotateLeft() *node[V] {
	r := n.right
	n.right, r.left = r.left, n
	n.update()
	r.update()
	return r
}

func (n *node[V]) rotateRight() *node[V] {
	l := n.left
	n.left, l.right = l.right, n
	n.update()
	l.update()
	return l
}

// Valid checks the invariants of the tree. It visits every node.
func (t *Tree[V]) Valid() error {
	var prev *node[V]
	count := 0
	var walk func(n *node[V]) error
	walk = func(n *node[V]) error {
		if n == nil {
			return nil
		}
		if err := walk(n.left); err != nil {
			return err
		}
		count++
		if n.hi != Unbounded && n.lo >= n.hi {
			return fmt.Errorf("I4: empty interval [%q, %q)", n.lo, n.hi)
		}
		if prev != nil && order(prev.lo, prev.hi, n) >= 0 {
			return fmt.Errorf("I1: [%q, %q) comes after [%q, %q)", n.lo, n.hi, prev.lo, prev.hi)
		}
		prev = n
		if err := walk(n.right); err != nil {
			return err
		}
		if d := n.left.high() - n.right.high(); d < -1 || d > 1 {
			return fmt.Errorf("I2: children of [%q, %q) differ in height by %d", n.lo, n.hi, d)
		}
		was := *n
		was.update()
		if was.height != n.height || was.reach != n.reach {
			return fmt.Errorf("I3: [%q, %q) says height %d reach %q, has height %d reach %q", n.lo,
				n.hi, n.height, n.reach, was.height, was.reach)
		}
		return nil
	}
	if err := walk(t.root); err != nil {
		return fmt.Errorf("interval: %w", err)
	}
	if count != t.n {
		return errors.New("interval: the number of nodes is not the length")
	}
	return nil
}
