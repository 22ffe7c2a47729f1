package slab

// Ref names an allocation. The zero Ref names none.
//
//	 63            39 38          15 14        0
//	+----------------+--------------+-----------+
//	| generation: 25 |   slot: 24   | word: 15  |
//	+----------------+--------------+-----------+
//
// The slot is a place in the table, the generation counts the slabs that have been there, and the
// word is the position of the first word in the slab. An allocation that has a whole slab, which
// may be larger than 2^15 words, is at word 0.
type Ref uint64

const (
	wordBits = 15
	slotBits = 24
	genBits  = 25

	maxSlots = 1 << slotBits
	maxGen   = 1<<genBits - 1
)

func newRef(gen, slot uint32, word int) Ref {
	return Ref(gen)<<(wordBits+slotBits) | Ref(slot)<<wordBits | Ref(word)
}

func (r Ref) gen() uint32  { return uint32(r >> (wordBits + slotBits)) }
func (r Ref) slot() uint32 { return uint32(r>>wordBits) & (maxSlots - 1) }
func (r Ref) word() int    { return int(r & (1<<wordBits - 1)) }
