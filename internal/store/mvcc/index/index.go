package index

import (
	"vigil/internal/store/mvcc/keytree"
	"vigil/internal/store/mvcc/slab"
)

// Index is the writer's side of the index: the tree of the keys, and the memory of their entries.
// New and Builder make one.
type Index struct {
	Tree *keytree.Tree
	Pool *slab.Pool
}

// New returns an empty index.
func New() *Index {
	pool := slab.NewPool()
	return &Index{keytree.New(pool), pool}
}

// Get returns the entry of a key.
func (x *Index) Get(key string) (Entry, bool) { return Of(x.Tree.View(), key) }

// Add adds an entry without changes for a key that has none, as a live key. The key is copied.
func (x *Index) Add(key string) Entry {
	e, b := makeEntry(x.Pool, key, 1)
	b.fill(1, 0, nil)
	e.tab = x.Pool.Table()
	x.Tree.Insert(e.ref, true)
	return e
}

// Append adds a change that follows all other changes of the key. It does not change whether the
// key is live in the tree.
func (x *Index) Append(e Entry, c Change) {
	b := e.block()
	if n := b.len(); n == b.cap() {
		b = x.replaceBlock(e, 0, n, min(max(2*n, 4), max(n+1, maxBlock)))
	}
	b.append(c)
}

// Cut removes the oldest changes, but never all: see Drop.
func (x *Index) Cut(e Entry, oldest int) {
	n := e.block().len()
	x.replaceBlock(e, oldest, n, n-oldest)
}

// Undo removes the newest change, and the key too if that was its only change.
func (x *Index) Undo(key string, e Entry) {
	n := e.block().len() - 1
	if n == 0 {
		x.Drop(key, e)
		return
	}
	x.replaceBlock(e, 0, n, n)
}

// replaceBlock replaces the block with a copy of the changes from..to, with room for n. Readers may
// still read the old block.
func (x *Index) replaceBlock(e Entry, from, to, n int) block {
	old, oldRef := e.block(), e.blockRef()
	ref, words := x.Pool.Block(blockWords(n))
	b := block(words)
	b.fill(n, old.baseAfter(from), old.list()[changeWords*from:changeWords*to])
	e.setBlockRef(ref)
	x.releaseBlock(e, oldRef, old)
	return b
}

// releaseBlock releases a block that its entry no longer uses.
func (x *Index) releaseBlock(e Entry, ref slab.Ref, b block) {
	if ref == 0 {
		x.Pool.Release(e.ref, len(e.words)-entryHead)
		return
	}
	x.Pool.Release(ref, blockWords(b.cap()))
}

// Drop removes a key.
func (x *Index) Drop(key string, e Entry) {
	length := len(key)
	x.Tree.Delete(key)
	x.releaseBlock(e, e.blockRef(), e.block())
	x.releaseHead(length, e)
}

// releaseHead releases the memory of an entry that is no longer in the tree and whose block is
// already released.
func (x *Index) releaseHead(keyLength int, e Entry) {
	x.Pool.Release(e.ref, slab.ItemWords(keyLength, entryHead))
}

// Evacuate moves the memory of an entry out of the victims of a cleaning, and reports whether that
// changed the tree. Readers with an older snapshot continue to use the old memory, which the writer
// does not change any more.
func (x *Index) Evacuate(e Entry) (moved bool) {
	b, ref := e.block(), e.blockRef()
	n := b.len()
	if !x.Pool.Victim(e.ref) {
		x.replaceBlock(e, 0, n, n)
		return false
	}
	key := e.tab.Key(e.ref)
	var c Entry
	if ref != 0 && n > mostFirst && !x.Pool.Victim(ref) {
		// A long block stays where it is.
		c.ref, c.words = x.Pool.Item(key, entryHead)
		c.setBlockRef(ref)
		x.Tree.Replace(c.ref)
	} else {
		var to block
		c, to = makeEntry(x.Pool, key, n)
		to.fill(n, b.base(), b.list())
		x.Tree.Replace(c.ref)
		x.releaseBlock(e, ref, b)
	}
	c.SetLease(e.Lease())
	x.releaseHead(len(key), e)
	return true
}

// Words returns approximately how many words an entry and its block take.
func (e Entry) Words() int { return len(e.words) + len(e.Changes()) }

// InVictim reports whether an entry has memory in a victim of a cleaning.
func (x *Index) InVictim(e Entry) bool {
	if x.Pool.Victim(e.ref) {
		return true
	}
	ref := e.blockRef()
	return ref != 0 && x.Pool.Victim(ref)
}
