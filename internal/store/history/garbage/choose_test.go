package garbage

import (
	"math"
	"testing"
)

// TestChoose is the table of cases of DESIGN.md.
func TestChoose(t *testing.T) {
	// seg is a sealed segment: dead bytes that a rewrite would win, and those that it would not win
	// yet.
	seg := func(size, dead, waiting int64) Candidate {
		return Candidate{Size: size, Dead: dead, All: dead + waiting, OK: true}
	}
	pending := func(size, all int64) Candidate { return Candidate{Size: size, Dead: all, All: all} }
	base := Terms{Allowed: 50, Size: 1000, Room: math.MaxInt64}
	full := Terms{Allowed: 1, Size: 300, Room: 300}
	thorough := Terms{Size: 1000, Room: math.MaxInt64, Thorough: true}
	for _, c := range []struct {
		name     string
		cs       []Candidate
		t        Terms
		from, to int
	}{
		{"little garbage", []Candidate{seg(1000, 50, 0)}, base, 0, 0},
		{"the largest share",
			[]Candidate{seg(1000, 100, 0), seg(1000, 400, 0), seg(1000, 200, 0)}, base, 1, 2},
		{"a little everywhere", []Candidate{seg(1000, 40, 0), seg(1000, 40, 0)}, base, 0, 0},
		{"a little everywhere, all wanted",
			[]Candidate{seg(1000, 0, 0), seg(1000, 40, 0), seg(1000, 40, 0)}, thorough, 1, 2},
		{"tombstones wait", []Candidate{seg(1000, 0, 0), seg(1000, 10, 0),
			seg(1000, 0, 500)}, base, 1, 2},
		{"tombstones wait for a segment that is not sealed",
			[]Candidate{pending(1000, 10), seg(1000, 0, 500), seg(1000, 20, 0)}, base, 0, 0},
		{"tombstones wait for a segment that is not sealed, all wanted",
			[]Candidate{pending(1000, 10), seg(1000, 0, 500), seg(1000, 20, 0)}, thorough, 2, 3},
		{"neighbors worth it",
			[]Candidate{seg(500, 300, 0), seg(500, 400, 0), seg(500, 200, 0)}, base, 0, 3},
		{"small neighbors", []Candidate{seg(120, 0, 0), seg(800, 400, 0),
			seg(130, 0, 0)}, base, 0, 2},
		{"a neighbor beyond the size",
			[]Candidate{seg(1000, 300, 0), seg(1000, 600, 0)}, base, 1, 2},
		{"full disk, no room", []Candidate{seg(1000, 600, 0)}, full, 0, 0},
		{"full disk, the one that fits",
			[]Candidate{seg(1000, 650, 0), seg(400, 200, 0)}, full, 1, 2},
	} {
		garbage := int64(0)
		for _, k := range c.cs {
			if k.OK {
				garbage += k.All
			}
		}
		if from, to := Choose(c.cs, garbage, c.t); from != c.from || to != c.to {
			t.Errorf("%s: segments %d to %d, not %d to %d", c.name, from, to, c.from, c.to)
		}
	}
}
