package keytree

import "vigil/internal/store/mvcc/slab"

// leafFill and innerFill are the numbers of keys and children that a Builder puts into a node, and
// that stay in a node that is split at its end. They leave some room, so that the first changes do
// not split every node, and the new node of a split gets some.
const (
	leafFill  = leafWidth * 7 / 8
	innerFill = innerWidth * 7 / 8
)

// Builder makes a tree of items that are added in ascending order of their keys, in linear time.
type Builder struct {
	pool *slab.Pool
	tab  *slab.Table
	leaf *leaf
	// levels holds the unfinished node of each level above the leaves, the lowest first.
	levels []*inner
	// sep is the bound between the last finished leaf and the unfinished one.
	sep  string
	last string
	size int

	bounds bounds
}

// NewBuilder returns a builder of a tree of items in a pool. All items must have been allocated
// before.
func NewBuilder(pool *slab.Pool) *Builder {
	return &Builder{pool: pool, tab: pool.Table(), leaf: &leaf{gen: 1}}
}

// Add appends an item, whose key must be above all keys added before.
func (b *Builder) Add(ref slab.Ref, live bool) {
	key := b.tab.Key(ref)
	if b.leaf.n == leafFill {
		b.finishLeaf()
		b.leaf = &leaf{gen: 1}
		b.sep = b.bounds.between(b.last, key)
	}
	i := b.leaf.n
	b.leaf.refs[i] = ref
	b.leaf.setLive(int(i), live)
	b.leaf.n++
	b.last = key
	b.size++
}

func (b *Builder) finishLeaf() {
	b.leaf.reindex(b.tab)
	b.push(0, b.sep, node{leaf: b.leaf})
}

// push adds a finished node to the unfinished one at a level.
func (b *Builder) push(level int, sep string, kid node) {
	if len(b.levels) == level {
		b.levels = append(b.levels, &inner{gen: 1})
	}
	n := b.levels[level]
	if n.n == innerFill {
		n.reindex()
		b.push(level+1, n.seps[0], node{inner: n})
		n = &inner{gen: 1}
		b.levels[level] = n
	}
	n.seps[n.n], n.kids[n.n], n.lives[n.n] = sep, kid, kid.liveKeys()
	n.n++
}

// Tree returns the tree. The builder must not be used afterwards.
func (b *Builder) Tree() *Tree {
	t := &Tree{pool: b.pool, gen: 1, size: b.size, bounds: b.bounds}
	if len(b.levels) == 0 {
		b.leaf.reindex(b.tab)
		t.root = node{leaf: b.leaf}
	} else {
		b.finishLeaf()
		for level := 0; level < len(b.levels)-1; level++ {
			n := b.levels[level]
			n.reindex()
			b.push(level+1, n.seps[0], node{inner: n})
		}
		root := b.levels[len(b.levels)-1]
		root.reindex()
		t.root = node{inner: root}
	}
	t.live = t.root.liveKeys()
	return t
}
