package garbage

// worthShare is the least share of a segment, in percent, that a rewrite should win.
const worthShare = 10

// Candidate is a segment that may be rewritten.
type Candidate struct {
	Size int64
	Dead int64 // that a rewrite would win
	All  int64 // dead, whether it can be won now or not
	OK   bool  // it is sealed and can be rewritten
}

// left returns the size after a rewrite.
func (c *Candidate) left() int64 { return c.Size - c.Dead }

func (c *Candidate) worth() bool { return c.Dead > 0 && c.Dead*100 >= c.Size*worthShare }

// Terms bound a choice.
type Terms struct {
	Allowed  int64 // dead bytes that may stay
	Size     int64 // about what the merged segment may have
	Room     int64 // the most that a chosen segment may leave
	Thorough bool  // everything that can be won is wanted
}

// Choose returns the candidates to rewrite into one: cs[from:to], none if nothing is worth it. It
// changes their OK. DESIGN.md has the table of its cases.
//
// Rewriting the segment with the largest share of garbage wins most. A tombstone can only be
// dropped when no older segment has a dead record, which could be of its key. So when the rest are
// tombstones that wait for a little garbage in older segments, the oldest segment with garbage is
// rewritten. Every choice wins something, so rewriting ends.
func Choose(cs []Candidate, garbage int64, t Terms) (from, to int) {
	if garbage <= t.Allowed {
		return 0, 0
	}
	best, waiting := -1, int64(0)
	for i := range cs {
		c := &cs[i]
		if c.OK = c.OK && c.left() <= t.Room; !c.OK {
			continue
		}
		waiting += c.All - c.Dead
		if c.worth() && (best < 0 || c.Dead*cs[best].Size > cs[best].Dead*c.Size) {
			best = i
		}
	}
	if best < 0 && waiting <= garbage/2 && !t.Thorough {
		return 0, 0 // a little everywhere
	}
	for i := 0; best < 0 && i < len(cs); i++ {
		switch c := &cs[i]; {
		case c.OK && c.Dead > 0:
			best = i
		case c.All > 0 && !t.Thorough:
			return 0, 0 // later tombstones wait for it
		}
	}
	if best < 0 {
		return 0, 0
	}
	// Neighbors that are worth it as well, or have almost nothing left, join.
	from, to = best, best+1
	room := t.Size - cs[best].left()
	joins := func(i int) bool {
		if i < 0 || i >= len(cs) || !cs[i].OK {
			return false
		}
		left := cs[i].left()
		if left > room || !cs[i].worth() && left > t.Size/8 {
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
