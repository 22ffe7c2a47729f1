package keytree

import (
	"vigil/internal/store/mvcc/slab"
)

// Tree is the writer's side of the map. It is not safe for concurrent use; the snapshots it hands
// out are. The zero value is not usable: see New and Builder.
type Tree struct {
	pool *slab.Pool
	gen  uint64
	root node
	size int
	live int
	// bounds makes the bounds of new nodes.
	bounds bounds
}

// New returns an empty tree of items in a pool.
func New(pool *slab.Pool) *Tree {
	return &Tree{pool: pool, gen: 1, root: node{leaf: &leaf{gen: 1}}}
}

// Len returns the number of keys, live and dead.
func (t *Tree) Len() int { return t.size }

// Live returns the number of live keys.
func (t *Tree) Live() int { return t.live }

// View returns the tree's current state, which only the writer may read: the next change of the
// tree invalidates it.
func (t *Tree) View() Snapshot {
	return Snapshot{root: t.root, tab: t.pool.Table(), size: t.size, live: t.live}
}

// Snapshot returns the tree's current state, which stays valid. It takes constant time; the next
// change copies the nodes that it touches.
func (t *Tree) Snapshot() Snapshot {
	t.gen++
	return t.View()
}

// Get returns the item of key.
func (t *Tree) Get(key string) (slab.Ref, bool) { return t.View().Get(key) }

// Insert adds an item whose key is not in the map.
func (t *Tree) Insert(ref slab.Ref, live bool) {
	tab := t.pool.Table()
	key := tab.Key(ref)
	t.root = t.own(t.root)
	if right, sep := t.insert(tab, t.root, key, ref, live); right != (node{}) {
		root := &inner{gen: t.gen}
		root.insert(0, "", t.root)
		root.insert(1, sep, right)
		t.root = node{inner: root}
	}
	t.size++
	if live {
		t.live++
	}
}

// insert returns a new right neighbor of n, with its bound, if it had to split n.
func (t *Tree) insert(tab *slab.Table, n node, key string, ref slab.Ref,
	live bool) (right node, sep string) {
	if l := n.leaf; l != nil {
		i, _ := l.find(tab, key)
		dst, at, added := t.splitLeaf(tab, l, i)
		dst.insert(tab, at, key, ref, live)
		if added == nil {
			return node{}, ""
		}
		return node{leaf: added}, t.bounds.between(l.key(tab, int(l.n)-1), added.key(tab, 0))
	}
	in := n.inner
	i := in.child(key)
	kid := t.own(in.kids[i])
	in.kids[i] = kid
	added, sep := t.insert(tab, kid, key, ref, live)
	in.lives[i] = kid.liveKeys()
	if added == (node{}) {
		return node{}, ""
	}
	dst, at, half := t.splitInner(in, i+1)
	dst.insert(at, sep, added)
	if half == nil {
		return node{}, ""
	}
	// The first bound of a new node is a true bound, so it can be the node's bound in the parent
	// too.
	return node{inner: half}, half.seps[0]
}

// splitLeaf splits l if it is full. It returns the new place of position i of l, and the new right
// neighbor if there is one. Keys that arrive in ascending order fill leaves as a Builder does: if i
// is the end, leafFill keys stay in l. The new leaf gets more than one key: otherwise keys that
// arrive in descending order at the end of a full leaf would each get a leaf.
func (t *Tree) splitLeaf(tab *slab.Table, l *leaf, i int) (dst *leaf, at int, right *leaf) {
	if l.n < leafWidth {
		return l, i, nil
	}
	keep := leafWidth / 2
	if i == leafWidth {
		keep = leafFill
	}
	right = &leaf{gen: t.gen}
	l.moveTail(tab, keep, right)
	if i > keep {
		return right, i - keep, right
	}
	return l, i, right
}

// splitInner is splitLeaf for an inner node.
func (t *Tree) splitInner(n *inner, i int) (dst *inner, at int, right *inner) {
	if n.n < innerWidth {
		return n, i, nil
	}
	keep := innerWidth / 2
	if i == innerWidth {
		keep = innerFill
	}
	right = &inner{gen: t.gen}
	n.moveTail(keep, right)
	if i > keep {
		return right, i - keep, right
	}
	return n, i, right
}

// place returns the leaf of an existing key, which the tree may write, and the position of the key.
// It adds add to the counts on the way.
func (t *Tree) place(tab *slab.Table, key string, add int) (*leaf, int) {
	t.root = t.own(t.root)
	n := t.root
	for n.inner != nil {
		c := n.inner.child(key)
		n.inner.lives[c] += add
		n.inner.kids[c] = t.own(n.inner.kids[c])
		n = n.inner.kids[c]
	}
	i, _ := n.leaf.get(tab, key)
	return n.leaf, i
}

// SetLive changes the state of an existing key; it does nothing if the key does not exist.
func (t *Tree) SetLive(key string, live bool) {
	s := t.View()
	l := s.leafOf(key)
	i, found := l.get(s.tab, key)
	if !found || l.isLive(i) == live {
		return
	}
	delta := 1
	if !live {
		delta = -1
	}
	l, i = t.place(s.tab, key, delta)
	l.setLive(i, live)
	t.live += delta
}

// Replace replaces the item of a key with another item of the same key.
func (t *Tree) Replace(ref slab.Ref) {
	tab := t.pool.Table()
	l, i := t.place(tab, tab.Key(ref), 0)
	l.refs[i] = ref
}

// Delete removes key and reports whether it was there.
func (t *Tree) Delete(key string) bool {
	s := t.View()
	l := s.leafOf(key)
	i, found := l.get(s.tab, key)
	if !found {
		return false
	}
	if l.isLive(i) {
		t.live--
	}
	t.root = t.own(t.root)
	t.remove(s.tab, t.root, key)
	t.size--
	for t.root.inner != nil && t.root.inner.n == 1 {
		t.root = t.root.inner.kids[0]
	}
	return true
}

func (t *Tree) remove(tab *slab.Table, n node, key string) {
	if l := n.leaf; l != nil {
		i, _ := l.get(tab, key)
		l.removeAt(i)
		return
	}
	in := n.inner
	i := in.child(key)
	kid := t.own(in.kids[i])
	in.kids[i] = kid
	t.remove(tab, kid, key)
	in.lives[i] = kid.liveKeys()
	if kid.sparse() && in.n > 1 {
		t.join(tab, in, max(i, 1))
	}
}

// join joins the children i-1 and i of n, or balances them if one node cannot hold both.
func (t *Tree) join(tab *slab.Table, n *inner, i int) {
	left, right := t.own(n.kids[i-1]), t.own(n.kids[i])
	n.kids[i-1], n.kids[i] = left, right
	united := false
	if left.leaf != nil {
		united = t.joinLeaves(tab, n, i, left.leaf, right.leaf)
	} else {
		united = t.joinInners(n, i, left.inner, right.inner)
	}
	n.lives[i-1] = left.liveKeys()
	if united {
		n.removeAt(i)
		return
	}
	n.lives[i] = n.kids[i].liveKeys()
	n.reindex()
}

// joinLeaves moves everything from right to left, or balances the two so that each has half.
func (t *Tree) joinLeaves(tab *slab.Table, n *inner, i int, left, right *leaf) (united bool) {
	all := int(left.n + right.n)
	if all <= leafWidth {
		right.moveTail(tab, 0, left)
		return true
	}
	tail, half := &leaf{gen: t.gen}, all/2
	if int(left.n) > half {
		right.moveTail(tab, 0, tail)
		left.moveTail(tab, half, right)
		tail.moveTail(tab, 0, right)
	} else {
		right.moveTail(tab, half-int(left.n), tail)
		right.moveTail(tab, 0, left)
		right = tail
		n.kids[i] = node{leaf: right}
	}
	n.seps[i] = t.bounds.between(left.key(tab, int(left.n)-1), right.key(tab, 0))
	return false
}

// joinInners is joinLeaves for inner nodes.
func (t *Tree) joinInners(n *inner, i int, left, right *inner) (united bool) {
	right.seps[0] = n.seps[i]
	all := int(left.n + right.n)
	if all <= innerWidth {
		right.moveTail(0, left)
		return true
	}
	tail, half := &inner{gen: t.gen}, all/2
	if int(left.n) > half {
		right.moveTail(0, tail)
		left.moveTail(half, right)
		tail.moveTail(0, right)
	} else {
		right.moveTail(half-int(left.n), tail)
		right.moveTail(0, left)
		right = tail
		n.kids[i] = node{inner: right}
	}
	n.seps[i] = right.seps[0]
	return false
}

// own returns n if the tree may write it, otherwise a copy.
func (t *Tree) own(n node) node {
	switch {
	case n.leaf != nil && n.leaf.gen != t.gen:
		c := *n.leaf
		c.gen = t.gen
		return node{leaf: &c}
	case n.inner != nil && n.inner.gen != t.gen:
		c := *n.inner
		c.gen = t.gen
		return node{inner: &c}
	}
	return n
}
