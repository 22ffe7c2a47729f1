package history

import "math"

const (
	// garbageShare is how many bytes may be dead for each one that is live before segments are
	// rewritten, in percent. With the slack that segments have on their own it keeps the directory
	// below 1.5 times the live bytes.
	garbageShare = 15
	// worthShare is the least share of a segment, in percent, that a rewrite should win.
	worthShare = 10
)

// candidate is a segment as choose sees it.
type candidate struct {
	seg  *segment
	size int64
	dead int64 // that a rewrite would win
	all  int64 // dead, whether it can be won now or not
	ok   bool  // it is sealed and can be rewritten
}

// left returns the size after a rewrite.
func (c *candidate) left() int64 { return c.size - c.dead }

func (c *candidate) worth() bool { return c.dead > 0 && c.dead*100 >= c.size*worthShare }

// terms bound a choice.
type terms struct {
	allowed  int64 // dead bytes that may stay
	size     int64 // about what the merged segment may have
	room     int64 // the most that a chosen segment may leave
	thorough bool  // everything that can be won is wanted
}

// terms returns the terms of the next choice, and how many bytes a second the rewrite may take.
func (r *reclaimer) terms(garbage, live int64, thorough bool) (t terms, rate int64) {
	share, rate, free := r.urgency()
	t = terms{allowed: live/100*share + r.o.SegmentBytes/1024, size: r.cat.mergedSize(), room: math.MaxInt64, thorough: thorough}
	if thorough {
		t.allowed, rate = 0, max(rate, 4*reclaimRate)
	}
	if garbage > live {
		rate = max(rate, 4*reclaimRate)
	}
	if rate == math.MaxInt64 {
		// On a full disk only the reserve can be written to, on a nearly full one a part of the free space.
		r.mu.Lock()
		t.room = max(r.alloc.reserveSize, free/2)
		r.mu.Unlock()
		t.size = min(t.size, t.room)
	}
	return t, rate
}

// choose returns which of the candidates to rewrite into one: cs[from:to]; none if nothing is worth it.
// DESIGN.md has the table of its cases.
//
// Rewriting the segment with the largest share of garbage wins most. A tombstone can only be dropped when no older
// segment has a dead record, which could be of its key. So when the rest are tombstones that wait for a little garbage
// in older segments, the oldest segment with garbage is rewritten. Every choice wins something, so rewriting ends.
func choose(cs []candidate, garbage int64, t terms) (from, to int) {
	if garbage <= t.allowed {
		return 0, 0
	}
	best, waiting := -1, int64(0)
	for i := range cs {
		c := &cs[i]
		if c.ok = c.ok && c.left() <= t.room; !c.ok {
			continue
		}
		waiting += c.all - c.dead
		if c.worth() && (best < 0 || c.dead*cs[best].size > cs[best].dead*c.size) {
			best = i
		}
	}
	if best < 0 && waiting <= garbage/2 && !t.thorough {
		return 0, 0 // a little everywhere
	}
	for i := 0; best < 0 && i < len(cs); i++ {
		switch c := &cs[i]; {
		case c.ok && c.dead > 0:
			best = i
		case c.all > 0 && !t.thorough:
			return 0, 0 // later tombstones wait for it
		}
	}
	if best < 0 {
		return 0, 0
	}
	// Neighbors that are worth it as well, or have almost nothing left, join.
	from, to = best, best+1
	room := t.size - cs[best].left()
	joins := func(i int) bool {
		if i < 0 || i >= len(cs) || !cs[i].ok {
			return false
		}
		left := cs[i].left()
		if left > room || !cs[i].worth() && left > t.size/8 {
			return false
		}
		room -= left
		return true
	}
	for grown := true; grown; {
		grown = false
		if joins(from - 1) {
			from, grown = from-1, true
		}
		if joins(to) {
			to, grown = to+1, true
		}
	}
	return from, to
}

// urgency returns how many percent of the live bytes may be garbage and how fast it is reclaimed: less and
// faster the fuller the disk is. free is the free space.
func (r *reclaimer) urgency() (share, rate, free int64) {
	free, err := r.o.FS.Free(r.o.Dir)
	if err != nil {
		return garbageShare, reclaimRate, 0
	}
	total, _ := r.cat.size()
	switch {
	case free < 4*r.o.SegmentBytes || free < total/16:
		return 1, math.MaxInt64, free
	case free < 16*r.o.SegmentBytes || free < total/4:
		return garbageShare / 3, 4 * reclaimRate, free
	default:
		return garbageShare, reclaimRate, free
	}
}
