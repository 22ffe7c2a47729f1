package archiver

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCoverage compares a coverage with a set of indexes.
func TestCoverage(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		var c coverage
		set := map[uint64]bool{}
		for range r.IntN(20) {
			first := 1 + r.Uint64N(60)
			last := first + r.Uint64N(8)
			c.add(first, last)
			for i := first; i <= last; i++ {
				set[i] = true
			}
		}
		for i := 1; i < len(c.spans); i++ {
			if c.spans[i].first <= c.spans[i-1].last+1 {
				t.Fatalf("seed %d: spans %v", seed, c.spans)
			}
		}
		var end uint64
		for i := range set {
			end = max(end, i)
		}
		if c.end() != end {
			t.Fatalf("seed %d: end %d, want %d", seed, c.end(), end)
		}
		for from := uint64(1); from < 75; from++ {
			first, last := c.next(from)
			want := from
			for set[want] {
				want++
			}
			if first != want {
				t.Fatalf("seed %d: next(%d) is %d, want %d of %v", seed, from, first, want, c.spans)
			}
			for i := first; i <= min(last, 80); i++ {
				if set[i] {
					t.Fatalf("seed %d: next(%d) is %d to %d, and %d is there: %v", seed, from,
						first, last, i, c.spans)
				}
			}
			if last < 80 && !set[last+1] {
				t.Fatalf("seed %d: next(%d) ends at %d before a missing index: %v", seed,
					from, last, c.spans)
			}
		}
		var missing []uint64
		for _, h := range c.holes(3, 70) {
			for i := h.first; i <= h.last; i++ {
				missing = append(missing, i)
			}
		}
		var want []uint64
		for i := uint64(3); i <= 70; i++ {
			if !set[i] {
				want = append(want, i)
			}
		}
		if !slices.Equal(missing, want) {
			t.Fatalf("seed %d: holes %v, want %v", seed, missing, want)
		}
	}
}

// TestCoverageIsBounded adds more holes than are kept.
func TestCoverageIsBounded(t *testing.T) {
	var c coverage
	for i := range uint64(3 * maxSpans) {
		c.add(10+3*i, 10+3*i)
	}
	if len(c.spans) != maxSpans || c.end() != 10+3*(3*maxSpans-1) {
		t.Fatalf("%d spans up to %d", len(c.spans), c.end())
	}
}
