package index

import (
	"math"
	"sort"
	"sync/atomic"

	"vigil/internal/kv"
)

// Change is one change of a key.
type Change struct {
	Main int64
	// sub has tombstoneBit set if the change was a deletion.
	sub uint32
	// ver is the version that the change made, 0 for a deletion. Once it has reached maxVersion it
	// stays there: then only the record has the version.
	ver uint32
}

const (
	tombstoneBit = 1 << 31
	// MaxSub is the largest number of a change within its revision.
	MaxSub     = tombstoneBit - 1
	maxVersion = math.MaxUint32
)

// NewPut returns the change that makes a version of a key.
func NewPut(rev kv.Rev, version int64) Change {
	return Change{Main: rev.Main, sub: uint32(rev.Sub), ver: uint32(min(version, maxVersion))}
}

// NewTombstone returns the change that deletes a key.
func NewTombstone(rev kv.Rev) Change {
	return Change{Main: rev.Main, sub: uint32(rev.Sub) | tombstoneBit}
}

// Tombstone reports whether the change was a deletion.
func (c Change) Tombstone() bool { return c.sub&tombstoneBit != 0 }

// Rev returns the revision of the change.
func (c Change) Rev() kv.Rev { return kv.Rev{Main: c.Main, Sub: int64(c.sub &^ tombstoneBit)} }

// Changes are changes of a key, oldest first, as words:
//
//	+---------+------------------------------+---------+----
//	| main:64 | version:32 deletion:1 sub:31 | main:64 | ...
//	+---------+------------------------------+---------+----
type Changes []uint64

const changeWords = 2

// Len returns the number of changes.
func (l Changes) Len() int { return len(l) / changeWords }

// Main returns the main revision of a change.
func (l Changes) Main(i int) int64 { return int64(l[changeWords*i]) }

// At returns a change.
func (l Changes) At(i int) Change {
	second := l[changeWords*i+1]
	return Change{Main: l.Main(i), sub: uint32(second), ver: uint32(second >> 32)}
}

func (l Changes) set(i int, c Change) {
	l[changeWords*i], l[changeWords*i+1] = uint64(c.Main), uint64(c.ver)<<32|uint64(c.sub)
}

// Find returns the position of the newest change at or below a revision, -1 if there is none.
func (l Changes) Find(revision int64) int {
	// Most reads ask for the newest state or one that was the newest a moment ago.
	n := l.Len()
	for i := n - 1; i >= max(n-4, 0); i-- {
		if l.Main(i) <= revision {
			return i
		}
	}
	return sort.Search(n, func(i int) bool { return l.Main(i) > revision }) - 1
}

// Needless returns how many of the oldest changes a read at or above the compact revision cannot
// see.
func (l Changes) Needless(compact int64) int {
	i := l.Find(compact)
	if i >= 0 && l.At(i).Tombstone() {
		i++
	}
	return max(i, 0)
}

// created returns the create revision of the generation that the put at position i belongs to; base
// is the create revision of the first change's generation. For a deletion the result has no
// meaning.
func (l Changes) created(i int, base int64) int64 {
	c := l.At(i)
	if c.ver == 0 {
		return c.Main
	}
	if first := i + 1 - int(c.ver); first >= 0 {
		return l.Main(first)
	}
	// The generation began before the first change, which therefore belongs to it too. No block is
	// long enough to hold the beginning of a generation whose versions exceed maxVersion.
	return base
}

// block is the changes of a key, oldest first. The writer appends and then publishes the new
// length; readers see the changes up to the length that they read. The writer never shortens a
// block: to drop changes, it replaces the block with a new one.
//
//	word 0                  1         2
//	+-----------------------+---------+------------------------
//	| capacity:32 length:32 | base:64 | changes, 2 words each
//	+-----------------------+---------+------------------------
//
// base is the create revision of the generation that the first change belongs to. It is immutable
// from the first change on. The writer owns the words beyond the length.
type block []uint64

const (
	blockHead = 2
	// maxBlock is the largest number of changes in a block.
	maxBlock = 1<<31 - 1
)

// blockWords returns the number of words of a block with room for n changes.
func blockWords(n int) int { return blockHead + changeWords*n }

func (b block) len() int    { return int(uint32(atomic.LoadUint64(&b[0]))) }
func (b block) base() int64 { return int64(b[1]) }

// cap returns the capacity. Only the writer may call it.
func (b block) cap() int { return int(b[0] >> 32) }

// list returns the published changes.
func (b block) list() Changes { return Changes(b[blockHead:blockWords(b.len())]) }

// fill turns b, whose memory is new, into a block with the changes from and room for n changes in
// all.
func (b block) fill(n int, base int64, from Changes) {
	if n > maxBlock {
		panic("index: a key has more changes than a block has room for; the store must be compacted")
	}
	b[1] = uint64(base)
	copy(b[blockHead:], from)
	atomic.StoreUint64(&b[0], uint64(n)<<32|uint64(from.Len()))
}

// append appends a change to a block that is not full.
func (b block) append(c Change) {
	n := b.len()
	if n == 0 {
		b[1] = uint64(c.Main)
	}
	Changes(b[blockHead:]).set(n, c)
	atomic.StoreUint64(&b[0], b[0]+1)
}

// baseAfter returns the base of b without its first k changes.
func (b block) baseAfter(k int) int64 {
	if l := b.list(); k < l.Len() {
		return l.created(k, b.base())
	}
	return b.base()
}
