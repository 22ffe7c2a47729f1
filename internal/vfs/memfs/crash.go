package memfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Crash ends the file system and returns what a disk may hold after power was lost in this moment,
// chosen with rng. It may be called again on the dead file system for another choice.
func (f *FS) Crash(rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.dead = true
	f.mu.locks = map[string]*lock{}

	// Names: a change happened or not; once one did not, no later change of its names did.
	after := map[*dir]map[string]*node{}
	names := func(d *dir) map[string]*node {
		m := after[d]
		if m == nil {
			m = make(map[string]*node, len(d.synced))
			for s, n := range d.synced {
				m[s] = n
			}
			after[d] = m
		}
		return m
	}
	lost := map[place]bool{}
	survives := chooser(rng)
	for i := range f.mu.pending {
		c := &f.mu.pending[i]
		if !lost[c.from] && !lost[c.to] && survives() {
			c.applyTo(names)
			continue
		}
		for _, p := range []place{c.from, c.to} {
			if p.dir != nil {
				lost[p] = true
			}
		}
	}

	out := New()
	files := map[*content]*node{}
	// Directories are walked in the order of their names, so that a seed means one outcome.
	var walk func(old *dir) *node
	walk = func(old *dir) *node {
		n := newDir()
		m := names(old)
		for _, s := range sortedKeys(m) {
			c := m[s]
			var to *node
			switch {
			case c.dir != nil:
				to = walk(c.dir)
			case files[c.file] != nil:
				to = files[c.file]
			default:
				to = &node{file: c.file.crash(rng)}
				files[c.file] = to
			}
			n.dir.cur[s], n.dir.synced[s] = to, to
		}
		return n
	}
	out.mu.root = walk(f.mu.root.dir)
	return out
}

// Kill ends the file system as the death of the process does: the returned one has everything that
// was written, and unsynced writes are still unsynced. It uses the same memory: the old one cannot
// crash any more.
func (f *FS) Kill() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.dead = true
	f.mu.locks = map[string]*lock{}
	out := New()
	out.mu.root = f.mu.root
	out.mu.pending = append([]change(nil), f.mu.pending...)
	return out
}

// chooser returns a function that decides for one unsynced change after another whether it
// survives. The likelihood differs from one chooser to the next, from none to all, so that rare
// outcomes occur.
func chooser(rng *rand.Rand) func() bool {
	switch p := rng.IntN(8); p {
	case 0:
		return func() bool { return false }
	case 1:
		return func() bool { return true }
	case 2: // a prefix
		left := rng.IntN(16)
		return func() bool { left--; return left >= 0 }
	default:
		likely := []float64{0.05, 0.3, 0.5, 0.7, 0.95}[p-3]
		return func() bool { return rng.Float64() < likely }
	}
}

// crash returns the file as it may be after power was lost.
func (c *content) crash(rng *rand.Rand) *content {
	c.mu.Lock()
	defer c.mu.Unlock()
	// got is what the disk has, all what the file had as it grew.
	got, all := c.mu.synced.clone(), c.mu.synced.clone()
	size := got.size
	if len(c.mu.pending) > 0 {
		survives := chooser(rng)
		whole := rng.IntN(3) == 0 // no torn writes this time
		// The size is the one after this many changes.
		sized := []int{0, len(c.mu.pending), rng.IntN(len(c.mu.pending) + 1)}[rng.IntN(3)]
		var sector [sectorSize]byte
		for i := range c.mu.pending {
			ch := &c.mu.pending[i]
			if ch.resize {
				all.resize(ch.off, &c.mu.synced)
				if survives() {
					got.resize(ch.off, &c.mu.synced)
				}
			} else {
				all.write(ch.data, ch.off, &c.mu.synced)
				keep := whole && survives()
				end := ch.off + int64(len(ch.data))
				for off := ch.off &^ (sectorSize - 1); off < end; off += sectorSize {
					if whole && keep || !whole && survives() {
						all.read(sector[:], off)
						got.write(sector[:], off, &c.mu.synced)
					}
				}
			}
			if i+1 == sized {
				size = all.size
			}
		}
	}
	got.resize(size, &c.mu.synced)
	out := &content{}
	out.mu.synced = got
	out.mu.cur = got.clone()
	return out
}

func sortedKeys(m map[string]*node) []string {
	return slices.Sorted(maps.Keys(m))
}
