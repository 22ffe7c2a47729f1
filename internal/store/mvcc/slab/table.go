package slab

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// slab is a piece of memory. It is immutable, but its words are not.
type slab struct {
	gen uint32
	mem []uint64
}

// chunkSlots is the number of slots that tables share or copy together.
const chunkSlots = 64

// chunk is a part of a table. Slots that are free are filled while readers use the table.
type chunk [chunkSlots]atomic.Pointer[slab]

// Table resolves the refs of a Pool. It is safe for concurrent use.
type Table struct {
	// chunks are shared with the tables before and after this one, except the chunks that lost a
	// slab.
	chunks []*chunk
	// next is the table that replaced this one, nil for the newest.
	next atomic.Pointer[Table]
}

// Outdated reports whether another table has replaced this one: t may keep slabs in memory that the
// pool has removed.
func (t *Table) Outdated() bool { return t.next.Load() != nil }

// Words returns the memory of an allocation, from its first word to the end of its slab; the caller
// knows its length.
func (t *Table) Words(r Ref) []uint64 {
	if s := t.slab(r); s != nil {
		return s.mem[r.word():]
	}
	return t.later(r)
}

// slab returns the slab of an allocation if this table has it.
func (t *Table) slab(r Ref) *slab {
	slot := int(r.slot())
	if slot/chunkSlots >= len(t.chunks) {
		return nil
	}
	s := t.chunks[slot/chunkSlots][slot%chunkSlots].Load()
	if s == nil || s.gen != r.gen() {
		return nil
	}
	return s
}

// later returns what Words returns, for an allocation that is newer than this table.
func (t *Table) later(r Ref) []uint64 {
	for at := t.next.Load(); at != nil; at = at.next.Load() {
		if s := at.slab(r); s != nil {
			return s.mem[r.word():]
		}
	}
	panic(fmt.Sprintf("slab: no memory for %#x: it was not reachable when the table was the newest",
		uint64(r)))
}

// An item is a key with words that belong to it:
//
//	word 0             1              1+k             1+k+n
//	+------------------+---------------+----------------+
//	| n:32 | length:32 | key, k words  | n words        |
//	+------------------+---------------+----------------+
//
// The key fills k = (length+7)/8 words, in memory order; the rest of the last word is zero.

// Key returns the key of an item. It is immutable, and keeps the slab of the item in memory: keep a
// copy, not the key.
func (t *Table) Key(r Ref) string {
	w := t.Words(r)
	return keyOf(w)
}

func keyOf(w []uint64) string {
	n := int(uint32(w[0]))
	if n == 0 {
		return ""
	}
	key := w[1 : 1+keyWords(n)]
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(key))), n)
}

// Item returns the words of an item that follow its key.
func (t *Table) Item(r Ref) []uint64 {
	w := t.Words(r)
	from := 1 + keyWords(int(uint32(w[0])))
	n := int(w[0] >> 32)
	return w[from : from+n : from+n]
}

func keyWords(n int) int { return (n + 7) / 8 }

// ItemWords returns the number of words that an item takes, with a key of length bytes and n words.
func ItemWords(length, n int) int { return 1 + keyWords(length) + n }

// fillItem writes the head and the key of an item into its memory, which is zero, and returns the
// words after the key.
func fillItem(w []uint64, key string, n int) []uint64 {
	w[0] = uint64(n)<<32 | uint64(uint32(len(key)))
	k := keyWords(len(key))
	if k > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&w[1])), 8*k), key)
	}
	return w[1+k : 1+k+n : 1+k+n]
}
