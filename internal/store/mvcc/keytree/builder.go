package keytree

// fill is the number of keys that a Builder puts into a node: not all the room there is, so that
// the first changes do not split every node.
const fill = width * 7 / 8

// Builder makes a tree of keys that are added in ascending order, in linear time. The zero value is
// ready for use.
type Builder[V any] struct {
	// levels holds the unfinished node of each level, the leaf first.
	levels []*node[V]
	size   int
}

// Add appends a key, which must be above all that were added before.
func (b *Builder[V]) Add(key string, v V, live bool) {
	if len(b.levels) == 0 {
		b.levels = append(b.levels, newLeaf[V](1))
	}
	leaf := b.levels[0]
	if len(leaf.keys) == fill {
		b.push(1, leaf)
		leaf = newLeaf[V](1)
		b.levels[0] = leaf
	}
	i := len(leaf.keys)
	leaf.keys = append(leaf.keys, key)
	leaf.vals = append(leaf.vals, v)
	if live {
		leaf.live |= 1 << i
	}
	b.size++
}

// push adds a finished node to the level above it.
func (b *Builder[V]) push(level int, kid *node[V]) {
	kid.reindex()
	if len(b.levels) == level {
		b.levels = append(b.levels, newInner[V](1))
	}
	n := b.levels[level]
	if len(n.kids) == fill {
		b.push(level+1, n)
		n = newInner[V](1)
		b.levels[level] = n
	}
	n.keys = append(n.keys, kid.keys[0])
	n.kids = append(n.kids, kid)
	n.lives = append(n.lives, kid.liveKeys())
}

// Tree returns the tree. The builder must not be used afterwards.
func (b *Builder[V]) Tree() *Tree[V] {
	if len(b.levels) == 0 {
		return New[V]()
	}
	for level := 0; level < len(b.levels)-1; level++ {
		b.push(level+1, b.levels[level])
	}
	root := b.levels[len(b.levels)-1]
	root.reindex()
	return &Tree[V]{gen: 1, root: root, size: b.size, live: root.liveKeys()}
}
