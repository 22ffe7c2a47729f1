package mvcc

import (
	"math"
	"sort"
	"sync/atomic"

	"vigil/internal/kv"
)

// rec is one change of a key. It holds no pointer, so that a block of them costs the garbage
// collector nothing.
type rec struct {
	main int64
	// sub has tombstoneBit set if the change was a deletion.
	sub uint32
	// ver is the version that the change made, 0 for a deletion. It stays at verMax once it got
	// there: then the version is in the record only.
	ver uint32
}

const (
	tombstoneBit = 1 << 31
	maxSub       = tombstoneBit - 1
	verMax       = math.MaxUint32
)

func newRec(rev kv.Rev, version int64) rec {
	return rec{main: rev.Main, sub: uint32(rev.Sub), ver: uint32(min(version, verMax))}
}

func newTombstone(rev kv.Rev) rec {
	return rec{main: rev.Main, sub: uint32(rev.Sub) | tombstoneBit}
}

func (r rec) tombstone() bool { return r.sub&tombstoneBit != 0 }
func (r rec) rev() kv.Rev     { return kv.Rev{Main: r.main, Sub: int64(r.sub &^ tombstoneBit)} }

// block is the changes of a key, oldest first. The writer appends and then publishes the new
// length; readers see the changes up to the length that they read. A block is never shortened: to
// drop old changes, a new block takes its place.
type block struct {
	n atomic.Uint32
	// base is the create revision of the generation that recs[0] belongs to. Immutable.
	base int64
	// recs has the length of its capacity. What is at n and beyond is the writer's.
	recs []rec
}

// list returns the published changes.
func (b *block) list() []rec { return b.recs[:b.n.Load()] }

// entry is a key of the index. It stays the same from the key's first change until the index drops
// it; a snapshot that still has it may go on reading it.
type entry struct {
	// block is written by the writer and the trimmer, under the writer's lock.
	block atomic.Pointer[block]

	// The newest state of the key, of the open batch too. Owned by the writer. version is 0 when
	// the key does not exist.
	create, version, lease int64

	// The first block lies in the entry, since most keys that change at all are young.
	first block
	room  [1]rec
}

func newEntry() *entry {
	e := &entry{}
	e.first.recs = e.room[:]
	e.block.Store(&e.first)
	return e
}

// append adds a change that follows all others. Writer only.
func (e *entry) append(r rec) {
	b := e.block.Load()
	n := b.n.Load()
	if int(n) == len(b.recs) {
		b = b.without(0, true)
		if b.n.Load() == 0 {
			b.base = r.main
		}
		n = b.n.Load()
		b.recs[n] = r
		b.n.Store(n + 1)
		e.block.Store(b)
		return
	}
	if n == 0 {
		b.base = r.main
	}
	b.recs[n] = r
	b.n.Store(n + 1)
}

// needless returns how many of the oldest changes a read at or above compacted cannot see.
func (b *block) needless(compacted int64) int {
	recs := b.list()
	i := search(recs, compacted)
	if i >= 0 && recs[i].tombstone() {
		i++
	}
	return max(i, 0)
}

// without returns a copy of b without its first k changes, with room for more if it is to grow.
func (b *block) without(k int, grow bool) *block {
	recs := b.list()
	size := len(recs) - k
	if grow {
		size = max(2*size, 4)
	}
	c := &block{base: b.base, recs: make([]rec, size)}
	if k < len(recs) {
		c.base = created(recs, k, b.base)
	}
	c.n.Store(uint32(copy(c.recs, recs[k:])))
	return c
}

// search returns the position of the newest change at or below revision at, -1 if there is none.
func search(recs []rec, at int64) int {
	// Most reads ask for the newest state or one that was the newest a moment ago.
	for i := len(recs) - 1; i >= max(len(recs)-4, 0); i-- {
		if recs[i].main <= at {
			return i
		}
	}
	return sort.Search(len(recs), func(i int) bool { return recs[i].main > at }) - 1
}

// created returns the create revision of the generation that the put recs[i] belongs to, base being
// that of recs[0]. For a deletion it returns something.
func created(recs []rec, i int, base int64) int64 {
	if recs[i].ver == 0 {
		return recs[i].main
	}
	if first := i + 1 - int(recs[i].ver); first >= 0 {
		return recs[first].main
	}
	// The generation began before recs[0], which therefore belongs to it too. No block is long
	// enough for the beginning of one whose versions have gone over verMax.
	return base
}

// state is a key that exists at a revision.
type state struct {
	rev    kv.Rev
	create int64
	// version is 0 if only the record knows it.
	version int64
}

// at returns the key as it was at a revision; ok is false if it did not exist.
func (e *entry) at(revision int64) (s state, ok bool) {
	b := e.block.Load()
	recs := b.list()
	i := search(recs, revision)
	if i < 0 || recs[i].tombstone() {
		return state{}, false
	}
	s = state{rev: recs[i].rev(), create: created(recs, i, b.base)}
	if recs[i].ver != verMax {
		s.version = int64(recs[i].ver)
	}
	return s, true
}
