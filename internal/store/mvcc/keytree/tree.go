package keytree

// Tree is the writer's side of the map. It is not safe for concurrent use; the snapshots it hands
// out are. The zero value is not usable: see New and Builder.
type Tree[V any] struct {
	gen  uint64
	root *node[V]
	size int
	live int
}

// New returns an empty tree.
func New[V any]() *Tree[V] {
	t := &Tree[V]{gen: 1}
	t.root = newLeaf[V](t.gen)
	return t
}

// Len returns the number of keys, live and dead.
func (t *Tree[V]) Len() int { return t.size }

// Live returns the number of live keys.
func (t *Tree[V]) Live() int { return t.live }

// View returns the tree's present state for reading by the writer only: it is no longer valid
// after the next change of the tree.
func (t *Tree[V]) View() Snapshot[V] { return Snapshot[V]{root: t.root, size: t.size, live: t.live} }

// Snapshot returns the tree's present state for good. It takes constant time; the next change
// copies what it touches.
func (t *Tree[V]) Snapshot() Snapshot[V] {
	t.gen++
	return t.View()
}

// Get returns the value of key.
func (t *Tree[V]) Get(key string) (V, bool) { return get(t.root, key) }

// Set gives key a value and a state, in place of those it may have.
func (t *Tree[V]) Set(key string, v V, live bool) {
	t.root = t.own(t.root)
	before := t.root.liveKeys()
	right := t.set(t.root, key, v, live)
	if right != nil {
		left := t.root
		t.root = newInner[V](t.gen)
		t.root.insertKid(0, "", left)
		t.root.insertKid(1, right.keys[0], right)
	}
	t.live += t.root.liveKeys() - before
}

// set returns a new right neighbour of n if n had to be split.
func (t *Tree[V]) set(n *node[V], key string, v V, live bool) *node[V] {
	if n.leaf() {
		i, found := n.find(key, 0)
		if found {
			n.vals[i] = v
			n.setLive(i, live)
			return nil
		}
		t.size++
		dst, at, right := t.makeRoom(n, i)
		dst.insertItem(at, key, v, live)
		return right
	}
	i := n.child(key)
	kid := t.own(n.kids[i])
	n.kids[i] = kid
	added := t.set(kid, key, v, live)
	n.lives[i] = kid.liveKeys()
	if added == nil {
		return nil
	}
	dst, at, right := t.makeRoom(n, i+1)
	dst.insertKid(at, added.keys[0], added)
	return right
}

// makeRoom splits n if it is full. It returns where position i of n is now, and the new right
// neighbour if there is one. Keys that arrive in ascending order fill nodes wholly: what belongs
// after the end of a full node is alone in the new one. The first bound of a new inner node
// is a true one, so that it can be its bound in the parent too.
func (t *Tree[V]) makeRoom(n *node[V], i int) (dst *node[V], at int, right *node[V]) {
	if len(n.keys) < width {
		return n, i, nil
	}
	right = n.like(t.gen)
	if i == width {
		return right, 0, right
	}
	n.moveTail(width/2, right)
	if i > width/2 {
		return right, i - width/2, right
	}
	return n, i, right
}

func (n *node[V]) setLive(i int, live bool) {
	if live {
		n.live |= 1 << i
	} else {
		n.live &^= 1 << i
	}
}

// SetLive changes the state of a key that exists; without such a key it does nothing.
func (t *Tree[V]) SetLive(key string, live bool) {
	n := t.root
	for !n.leaf() {
		n = n.kids[n.child(key)]
	}
	i, found := n.find(key, 0)
	if !found || n.isLive(i) == live {
		return
	}
	delta := 1
	if !live {
		delta = -1
	}
	t.root = t.own(t.root)
	for n = t.root; !n.leaf(); {
		c := n.child(key)
		n.lives[c] += delta
		n.kids[c] = t.own(n.kids[c])
		n = n.kids[c]
	}
	n.setLive(i, live)
	t.live += delta
}

// Delete removes key and reports whether it was there.
func (t *Tree[V]) Delete(key string) bool {
	if _, ok := t.Get(key); !ok {
		return false
	}
	t.root = t.own(t.root)
	before := t.root.liveKeys()
	t.remove(t.root, key)
	t.size--
	t.live += t.root.liveKeys() - before
	for !t.root.leaf() && len(t.root.kids) == 1 {
		t.root = t.root.kids[0]
	}
	return true
}

func (t *Tree[V]) remove(n *node[V], key string) {
	if n.leaf() {
		i, _ := n.find(key, 0)
		n.removeAt(i)
		return
	}
	i := n.child(key)
	kid := t.own(n.kids[i])
	n.kids[i] = kid
	t.remove(kid, key)
	n.lives[i] = kid.liveKeys()
	if len(kid.keys) < minFill && len(n.kids) > 1 {
		t.join(n, max(i, 1))
	}
}

// join unites the children i-1 and i of n, or evens them out if one node cannot hold both.
func (t *Tree[V]) join(n *node[V], i int) {
	left, right := t.own(n.kids[i-1]), t.own(n.kids[i])
	n.kids[i-1], n.kids[i] = left, right
	if !right.leaf() {
		right.keys[0] = n.keys[i]
	}
	if len(left.keys)+len(right.keys) <= width {
		right.moveTail(0, left)
		n.lives[i-1] = left.liveKeys()
		n.removeAt(i)
		return
	}
	if half := (len(left.keys) + len(right.keys)) / 2; len(left.keys) > half {
		// Everything after the middle moves right.
		tail := right.like(t.gen)
		right.moveTail(0, tail)
		left.moveTail(half, right)
		tail.moveTail(0, right)
	} else {
		tail := right.like(t.gen)
		right.moveTail(half-len(left.keys), tail)
		right.moveTail(0, left)
		right = tail
		n.kids[i] = right
	}
	n.lives[i-1], n.lives[i] = left.liveKeys(), right.liveKeys()
	n.keys[i] = right.keys[0]
	n.reindex()
}

// own returns n if the tree may write it, else a copy.
func (t *Tree[V]) own(n *node[V]) *node[V] {
	if n.gen == t.gen {
		return n
	}
	return n.clone(t.gen)
}
