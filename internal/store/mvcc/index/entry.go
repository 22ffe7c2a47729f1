package index

import (
	"math"
	"sync/atomic"

	"vigil/internal/kv"
	"vigil/internal/store/mvcc/keytree"
	"vigil/internal/store/mvcc/slab"
)

// Entry is a key of the index: the words of its item.
//
//	word 0          1          2
//	+---------------+----------+---------------------
//	| block: ref 64 | lease:64 | first block, or none
//	+---------------+----------+---------------------
//
// The ref names the block; while it is 0 the block is the first one. An entry belongs to the key
// until the index drops it or moves it to other memory. A reader whose snapshot still has the entry
// may go on reading it: it finds there every change up to the snapshot's revision.
type Entry struct {
	tab   *slab.Table
	ref   slab.Ref
	words []uint64
}

const (
	entryBlock = 0
	entryLease = 1
	entryHead  = 2

	// mostFirst is the largest number of changes for which makeEntry puts the block into the entry.
	// The index releases the memory of a longer block separately.
	mostFirst = 8
)

// Of returns the entry of a key.
func Of(tree keytree.Snapshot, key string) (Entry, bool) {
	ref, ok := tree.Get(key)
	if !ok {
		return Entry{}, false
	}
	return newEntry(tree.Table(), ref), true
}

// At returns the entry of an iterator's current key.
func At(it *keytree.Iterator) Entry { return newEntry(it.Table(), it.Ref()) }

func newEntry(tab *slab.Table, ref slab.Ref) Entry {
	return Entry{tab: tab, ref: ref, words: tab.Item(ref)}
}

// memory is where entries are allocated.
type memory interface {
	Item(key string, n int) (slab.Ref, []uint64)
	Block(n int) (slab.Ref, []uint64)
}

// makeEntry allocates an entry with an unfilled block for n changes.
func makeEntry(m memory, key string, n int) (Entry, block) {
	if n <= mostFirst {
		ref, words := m.Item(key, entryHead+blockWords(n))
		e := Entry{ref: ref, words: words}
		return e, e.first()
	}
	ref, words := m.Item(key, entryHead)
	e := Entry{ref: ref, words: words}
	ref, words = m.Block(blockWords(n))
	e.setBlockRef(ref)
	return e, block(words)
}

// Changes returns the changes that the key has now.
func (e Entry) Changes() Changes { return e.block().list() }

// block returns the current block, which the writer may replace at any time.
func (e Entry) block() block {
	if ref := e.blockRef(); ref != 0 {
		return block(e.tab.Words(ref))
	}
	return e.first()
}

func (e Entry) first() block { return block(e.words[entryHead:]) }

// blockRef returns the ref of the current block, 0 if that is the first block.
func (e Entry) blockRef() slab.Ref { return slab.Ref(atomic.LoadUint64(&e.words[entryBlock])) }

func (e Entry) setBlockRef(ref slab.Ref) { atomic.StoreUint64(&e.words[entryBlock], uint64(ref)) }

// Lease returns the lease of the newest state, including an open batch. Only the writer may call
// it.
func (e Entry) Lease() int64 { return int64(e.words[entryLease]) }

// SetLease sets the lease of the newest state.
func (e Entry) SetLease(id int64) { e.words[entryLease] = uint64(id) }

// State is a key that exists at a revision.
type State struct {
	// Rev is the revision of the change that made the state.
	Rev    kv.Rev
	Create int64
	// Version is 0 if only the record knows it.
	Version int64
}

// At returns the key as it was at a revision; ok is false if it did not exist.
func (e Entry) At(revision int64) (s State, ok bool) {
	b := e.block()
	l := b.list()
	i := l.Find(revision)
	if i < 0 {
		return State{}, false
	}
	c := l.At(i)
	if c.Tombstone() {
		return State{}, false
	}
	s = State{Rev: c.Rev(), Create: l.created(i, b.base())}
	if c.ver != maxVersion {
		s.Version = int64(c.ver)
	}
	return s, true
}

// Newest returns the key as the open batch has it. Only the writer may call it.
func (e Entry) Newest() (s State, ok bool) { return e.At(math.MaxInt64) }
