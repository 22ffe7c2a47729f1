package lease

// place is the place of a timer in a pool.
type place uint32

// blockTimers is the number of timers in a block of a pool.
const blockTimers = 1 << 9

// pool holds timers. They stay where they are while it grows.
type pool struct {
	blocks []*[blockTimers]timer
	// used is the number of places that were ever taken; freed holds the ones that are free again.
	used  place
	freed []place
}

func (p *pool) at(i place) *timer { return &p.blocks[i/blockTimers][i%blockTimers] }

// take returns a place, whose content is undefined.
func (p *pool) take() place {
	if last := len(p.freed) - 1; last >= 0 {
		i := p.freed[last]
		p.freed = p.freed[:last]
		return i
	}
	if int(p.used) == len(p.blocks)*blockTimers {
		p.blocks = append(p.blocks, new([blockTimers]timer))
	}
	p.used++
	return p.used - 1
}

// free gives a place back. A pool without timers has no more than one block.
func (p *pool) free(i place) {
	p.freed = append(p.freed, i)
	if len(p.freed) == int(p.used) && len(p.blocks) > 1 {
		*p = pool{blocks: p.blocks[:1:1]}
	}
}
