package slab

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Class separates allocations by how long they live, so that those released together lie together.
type Class uint8

const (
	// Items is the class of items.
	Items Class = iota
	// Blocks is the class of everything else.
	Blocks
	classes
)

const (
	// minSlab and maxSlab are the sizes of slabs in words. Slabs grow with the pool, so that a
	// small pool is small.
	minSlab = 512
	maxSlab = 1 << wordBits
	// An allocation of more than 1/ownPart of the size of new slabs gets a separate slab.
	ownPart = 8
)

// Cleaning is worth the work when more than 1/wantedPart of all words are released, and more than
// wantedLeast words. It empties the slabs of which at least 1/victimPart is released.
const (
	wantedPart  = 3
	wantedLeast = 4096
	victimPart  = 4
)

// Pool allocates memory. Only one goroutine at a time may call its methods; see NewArena for
// allocating in parallel.
type Pool struct {
	// table is the newest table.
	table atomic.Pointer[Table]
	// main allocates for the pool itself.
	main Arena

	mu struct {
		sync.Mutex
		// slots describes each slot of the table.
		slots []slot
		// unused are the slots that may be used again.
		unused []uint32
		// size is the number of words of all slabs.
		size int
	}
	// CleanFrom is the number of released words above which Wanted may report true. It may be
	// changed before the first use.
	CleanFrom int
	// slotLimit is the largest number of slots of the table.
	slotLimit uint32
	// removed counts the words of removed slabs.
	removed int
	// dead is the number of released words that are still in a slab.
	dead int
}

// slot describes a slot of the table. While the slot is unused all its fields but gen, which counts
// on, are zero.
type slot struct {
	gen uint32
	// size is the number of words of the slab, dead how many of them are released.
	size, dead int
	// sealed says that the pool allocates nothing in the slab any more. victim says that a cleaning
	// empties it.
	sealed, victim bool
}

// NewPool returns an empty pool.
func NewPool() *Pool {
	p := &Pool{CleanFrom: wantedLeast, slotLimit: maxSlots}
	p.main.p = p
	p.table.Store(&Table{})
	return p
}

// Table returns the newest table. It resolves every ref that is valid now or later.
func (p *Pool) Table() *Table { return p.table.Load() }

// Item allocates an item with a key and n words, which are zero. The key is copied.
func (p *Pool) Item(key string, n int) (Ref, []uint64) { return p.main.Item(key, n) }

// Block allocates n words, which are zero.
func (p *Pool) Block(n int) (Ref, []uint64) { return p.main.Block(n) }

// Release reports that nobody will look up n words of the allocation r in the newest table any
// more. Readers with older tables go on. Parts of an allocation may be released one after the
// other, each word once.
func (p *Pool) Release(r Ref, n int) {
	s := &p.mu.slots[r.slot()]
	if s.gen != r.gen() || n <= 0 || s.dead+n > s.size {
		panic(fmt.Sprintf("slab: %d words of %#x released: the slab has %d words and %d are released", n, uint64(r), s.size, s.dead))
	}
	s.dead += n
	p.dead += n
	if s.sealed && s.dead == s.size {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.removeLocked(r.slot())
	}
}

// removeLocked removes a slab whose words are all released.
func (p *Pool) removeLocked(at uint32) {
	s := &p.mu.slots[at]
	old := p.table.Load()
	t := &Table{chunks: make([]*chunk, len(old.chunks))}
	copy(t.chunks, old.chunks)
	c := new(chunk)
	for i := range c {
		if i != int(at%chunkSlots) {
			c[i].Store(t.chunks[at/chunkSlots][i].Load())
		}
	}
	t.chunks[at/chunkSlots] = c
	p.replaceTableLocked(t)
	p.dead -= s.dead
	p.mu.size -= s.size
	p.removed += s.size
	*s = slot{gen: s.gen}
	if s.gen < maxGen {
		p.mu.unused = append(p.mu.unused, at)
	}
}

// seal ends the use of a slab whose last rest words were not allocated.
func (p *Pool) seal(at uint32, rest int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.mu.slots[at]
	s.sealed = true
	s.dead += rest
	p.dead += rest
	if s.dead == s.size {
		p.removeLocked(at)
	}
}

// replaceTableLocked makes t the newest table.
func (p *Pool) replaceTableLocked(t *Table) {
	p.table.Load().next.Store(t)
	p.table.Store(t)
}

// add makes a slab for an allocation of n words: a slab of exactly that size if n is too large for
// a shared one.
func (p *Pool) add(n int) (at uint32, gen uint32, mem []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	words := p.nextSizeLocked()
	if n > words/ownPart {
		words = n
	}
	if k := len(p.mu.unused); k > 0 {
		at = p.mu.unused[k-1]
		p.mu.unused = p.mu.unused[:k-1]
	} else {
		at = uint32(len(p.mu.slots))
		if at == p.slotLimit {
			panic("slab: the table has no slot left")
		}
		p.mu.slots = append(p.mu.slots, slot{})
	}
	t := p.table.Load()
	if int(at/chunkSlots) >= len(t.chunks) {
		chunks := make([]*chunk, max(2*len(t.chunks), 1))
		for i := copy(chunks, t.chunks); i < len(chunks); i++ {
			chunks[i] = new(chunk)
		}
		t = &Table{chunks: chunks}
		p.replaceTableLocked(t)
	}
	s := &p.mu.slots[at]
	s.gen++
	s.size = words
	p.mu.size += words
	mem = make([]uint64, words)
	t.chunks[at/chunkSlots][at%chunkSlots].Store(&slab{gen: s.gen, mem: mem})
	return at, s.gen, mem
}

// nextSizeLocked returns the size of the next shared slab: about an eighth of the words in use.
func (p *Pool) nextSizeLocked() int {
	return min(max(1<<bits.Len(uint((p.mu.size-p.dead)/16)), minSlab), maxSlab)
}

// Size returns the number of words of all slabs, and how many of them are allocated and not
// released.
func (p *Pool) Size() (total, used int) {
	used = p.mu.size - p.dead
	for i := range p.main.open {
		used -= p.main.open[i].rest()
	}
	return p.mu.size, used
}

// Removed returns the number of words of all slabs that the pool has ever removed. Older tables
// still have them.
func (p *Pool) Removed() int { return p.removed }

// Wanted reports whether cleaning is worth the work.
func (p *Pool) Wanted() bool { return p.dead > p.CleanFrom && p.dead > p.mu.size/wantedPart }

// BeginClean chooses the slabs to empty, and reports whether there are any. The user then replaces
// each allocation for which Victim holds with a new one, and releases it; the pool removes a slab
// with its last allocation. In the end the user calls EndClean. Until then it may do anything else:
// new allocations are never in a victim.
func (p *Pool) BeginClean() bool {
	p.main.Seal()
	any := false
	for i := range p.mu.slots {
		if s := &p.mu.slots[i]; s.sealed && s.dead >= s.size/victimPart {
			s.victim, any = true, true
		}
	}
	return any
}

// Victim reports whether an allocation is in a slab that the cleaning empties.
func (p *Pool) Victim(r Ref) bool { return p.mu.slots[r.slot()].victim }

// EndClean ends a cleaning and returns the number of victims that still hold allocations.
func (p *Pool) EndClean() (left int) {
	for i := range p.mu.slots {
		if s := &p.mu.slots[i]; s.victim {
			s.victim = false
			left++
		}
	}
	return left
}
