package index

import (
	"vigil/internal/store/mvcc/keytree"
	"vigil/internal/store/mvcc/slab"
)

// Ref names an entry that is not in a tree yet.
type Ref = slab.Ref

// Builder makes an index of keys whose changes are all known: first the entries, with any number of
// Sections in parallel, and then the tree, in the order of the keys.
type Builder struct {
	pool *slab.Pool
	tree *keytree.Builder
}

// Section makes entries. One goroutine owns it.
type Section struct{ arena *slab.Arena }

// NewBuilder returns a builder of a new index.
func NewBuilder() *Builder { return &Builder{pool: slab.NewPool()} }

// NewSection returns a section. Finish ends its use.
func (b *Builder) NewSection() *Section { return &Section{b.pool.NewArena()} }

// Entry makes an entry for a key, which is copied, with n changes. The caller sets each of them.
func (s *Section) Entry(key string, lease, base int64, n int) (Ref, Changes) {
	e, b := makeEntry(s.arena, key, n)
	e.SetLease(lease)
	b.fill(n, base, Changes(b[blockHead:blockWords(n)]))
	return e.ref, b.list()
}

// Set sets a change of an entry that is not in a tree yet.
func (l Changes) Set(i int, c Change) { l.set(i, c) }

// Finish ends the use of a section.
func (s *Section) Finish() { s.arena.Seal() }

// Add adds an entry to the tree, in ascending order of the keys. All sections must be finished.
func (b *Builder) Add(ref Ref, live bool) {
	if b.tree == nil {
		b.tree = keytree.NewBuilder(b.pool)
	}
	b.tree.Add(ref, live)
}

// Index returns the index. The builder must not be used afterwards.
func (b *Builder) Index() *Index {
	if b.tree == nil {
		return &Index{keytree.New(b.pool), b.pool}
	}
	return &Index{b.tree.Tree(), b.pool}
}
