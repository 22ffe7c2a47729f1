package slab

// Arena allocates memory of a pool independently of the pool's other arenas: each belongs to one
// goroutine. While arenas are in use, nobody may release memory.
type Arena struct {
	p    *Pool
	open [classes]bump
}

// bump is a slab in which memory is allocated from the beginning to the end.
type bump struct {
	slot, gen uint32
	mem       []uint64
	at        int
}

// rest returns the number of words that are not allocated.
func (b *bump) rest() int { return len(b.mem) - b.at }

// NewArena returns an arena. Seal ends its use.
func (p *Pool) NewArena() *Arena { return &Arena{p: p} }

// Item allocates an item as Pool.Item does.
func (a *Arena) Item(key string, n int) (Ref, []uint64) {
	r, w := a.alloc(Items, ItemWords(len(key), n))
	return r, fillItem(w, key, n)
}

// Block allocates memory as Pool.Block does.
func (a *Arena) Block(n int) (Ref, []uint64) { return a.alloc(Blocks, n) }

// alloc allocates n words.
func (a *Arena) alloc(c Class, n int) (Ref, []uint64) {
	b := &a.open[c]
	if n > b.rest() {
		slot, gen, mem := a.p.add(n)
		if len(mem) == n {
			a.p.seal(slot, 0)
			return newRef(gen, slot, 0), mem
		}
		a.close(b)
		*b = bump{slot: slot, gen: gen, mem: mem}
	}
	r := newRef(b.gen, b.slot, b.at)
	w := b.mem[b.at : b.at+n : b.at+n]
	b.at += n
	return r, w
}

// Seal ends the use of the slabs that are not full.
func (a *Arena) Seal() {
	for i := range a.open {
		a.close(&a.open[i])
		a.open[i] = bump{}
	}
}

func (a *Arena) close(b *bump) {
	if b.mem != nil {
		a.p.seal(b.slot, b.rest())
	}
}
