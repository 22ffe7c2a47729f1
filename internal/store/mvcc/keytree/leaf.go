package keytree

import (
	"math/bits"

	"vigil/internal/store/mvcc/slab"
)

// leafWidth is the largest number of keys in a leaf. A change of the key set copies one leaf, so
// the width trades the cost of that copy against the number of leaves, which are the objects that
// the garbage collector visits. With 62 a leaf fills an allocation of 1024 bytes.
const leafWidth = 62

// leaf is a node of the lowest level.
type leaf struct {
	// gen is the generation of the tree that made the node and may still write it.
	gen uint64
	// live has a bit for each live key.
	live uint64
	// n is the number of keys.
	n int32
	// skip and heads let find decide most comparisons without reading the item.
	skip  int32
	heads [leafWidth]uint64
	refs  [leafWidth]slab.Ref
}

func (l *leaf) key(tab *slab.Table, i int) string { return tab.Key(l.refs[i]) }

func (l *leaf) isLive(i int) bool { return l.live&(1<<i) != 0 }

func (l *leaf) setLive(i int, live bool) {
	if live {
		l.live |= 1 << i
	} else {
		l.live &^= 1 << i
	}
}

// search returns the position of the first key at or above a key that shares the prefix of the
// leaf, and whether it is that key.
func (l *leaf) search(tab *slab.Table, key string) (int, bool) {
	h := headOf(key[l.skip:])
	i := firstHead(l.heads[:l.n], h)
	// Keys with the same head follow each other; the rest of the keys decides.
	end := i
	for end < int(l.n) && l.heads[end] == h {
		end++
	}
	for i < end {
		m := int(uint(i+end) / 2)
		if k := l.key(tab, m); k < key {
			i = m + 1
		} else if k == key {
			return m, true
		} else {
			end = m
		}
	}
	return i, false
}

// find returns the position of the first key at or above key, and whether it is key.
func (l *leaf) find(tab *slab.Table, key string) (int, bool) {
	if l.n == 0 {
		return 0, false
	}
	if l.skip > 0 {
		if first := l.key(tab, 0); !hasPrefix(key, first, int(l.skip)) {
			if key < first {
				return 0, false
			}
			return int(l.n), false
		}
	}
	return l.search(tab, key)
}

// get returns the position of key. It looks at no other item if the heads differ.
func (l *leaf) get(tab *slab.Table, key string) (int, bool) {
	if len(key) < int(l.skip) {
		return 0, false
	}
	return l.search(tab, key)
}

// reindex recomputes skip and heads after the leaf got items of another leaf, or a key without the
// prefix.
func (l *leaf) reindex(tab *slab.Table) {
	l.skip = 0
	if l.n > 0 {
		l.skip = int32(commonPrefix(l.key(tab, 0), l.key(tab, int(l.n)-1)))
	}
	for i := range int(l.n) {
		l.heads[i] = headOf(l.key(tab, i)[l.skip:])
	}
}

// narrow recomputes skip and heads after items at an end were removed.
func (l *leaf) narrow(tab *slab.Table) {
	if l.n == 0 || commonPrefix(l.key(tab, 0), l.key(tab, int(l.n)-1)) != int(l.skip) {
		l.reindex(tab)
	}
}

func (l *leaf) insert(tab *slab.Table, i int, key string, ref slab.Ref, live bool) {
	insertAt(l.refs[:], int(l.n), i, ref)
	insertAt(l.heads[:], int(l.n), i, 0)
	low := uint64(1)<<i - 1
	l.live = l.live&low | l.live&^low<<1
	l.setLive(i, live)
	l.n++
	peer := 0
	if i == 0 {
		peer = 1
	}
	if l.n == 1 || !hasPrefix(key, l.key(tab, peer), int(l.skip)) {
		l.reindex(tab)
		return
	}
	l.heads[i] = headOf(key[l.skip:])
}

func (l *leaf) removeAt(i int) {
	deleteAt(l.refs[:], int(l.n), i)
	deleteAt(l.heads[:], int(l.n), i)
	low := uint64(1)<<i - 1
	l.live = l.live&low | l.live>>1&^low
	l.n--
}

// moveTail moves the items from position i on to the end of dst. Both must be writable.
func (l *leaf) moveTail(tab *slab.Table, i int, dst *leaf) {
	skip, fresh := l.skip, dst.n == 0
	copy(dst.refs[dst.n:], l.refs[i:l.n])
	copy(dst.heads[dst.n:], l.heads[i:l.n])
	dst.live |= l.live >> i << dst.n
	dst.n += l.n - int32(i)
	clear(l.refs[i:l.n])
	clear(l.heads[i:l.n])
	l.live &= 1<<i - 1
	l.n = int32(i)
	l.narrow(tab)
	if !fresh {
		dst.reindex(tab)
		return
	}
	dst.skip = skip
	dst.narrow(tab)
}

func (l *leaf) liveKeys() int { return bits.OnesCount64(l.live) }
