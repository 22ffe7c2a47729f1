package garbage

import (
	"iter"
	"math/bits"
	"slices"
)

// Set holds the dead records of a segment, by their number.
type Set struct {
	bits []uint64
	// Dead counts all of them, Tombstones the tombstones among them.
	Dead, Tombstones Count
	// Unsure is set if other records may be dead that are not marked, because they could not be
	// found. A tombstone in this or a later segment may then delete a put that stays, and must stay
	// too, until the next Open.
	Unsure bool
}

// Count is a number of records and their bytes.
type Count struct {
	Records int
	Bytes   int64
}

func (c *Count) add(size int64) {
	c.Records++
	c.Bytes += size
}

// Shelters reports whether tombstones after the segment must stay.
func (s *Set) Shelters() bool { return s.Dead.Records > 0 || s.Unsure }

// Has reports whether record i is dead.
func (s *Set) Has(i int) bool { return i>>6 < len(s.bits) && s.bits[i>>6]&(1<<(i&63)) != 0 }

// Mark marks record i, size bytes long, unless it is marked.
func (s *Set) Mark(i int, size int64, tombstone bool) {
	if s.Has(i) {
		return
	}
	if n := i>>6 + 1; n > len(s.bits) {
		s.bits = slices.Grow(s.bits, n-len(s.bits))[:n]
	}
	s.bits[i>>6] |= 1 << (i & 63)
	s.Dead.add(size)
	if tombstone {
		s.Tombstones.add(size)
	}
}

// Clone returns a copy that later marks do not change.
func (s *Set) Clone() Set {
	c := *s
	c.bits = slices.Clone(s.bits)
	return c
}

// Since yields the number of every record that is dead now and was not in old, an earlier copy.
func (s *Set) Since(old *Set) iter.Seq[int] {
	return func(yield func(int) bool) {
		for w, now := range s.bits {
			if w < len(old.bits) {
				now &^= old.bits[w]
			}
			for ; now != 0; now &= now - 1 {
				if !yield(w<<6 + bits.TrailingZeros64(now)) {
					return
				}
			}
		}
	}
}
