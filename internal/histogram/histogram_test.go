package histogram

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBounds(t *testing.T) {
	const ms = time.Millisecond
	h := New(ms, 4)
	for _, d := range []time.Duration{-1, 0, 1, ms, ms + 1, 2 * ms, 2*ms + 1, 4 * ms, 4*ms + 1,
		8 * ms, 8*ms + 1, time.Hour} {
		h.Observe(d)
	}
	s := h.Read()
	if want := []uint64{4, 2, 2, 2, 2}; !slices.Equal(s.Buckets, want) {
		t.Errorf("%v, want %v", s.Buckets, want)
	}
	if want := map[float64]uint64{0.001: 4, 0.002: 6, 0.004: 8,
		0.008: 10}; !maps.Equal(s.Cumulative(time.Second), want) {
		t.Errorf("%v, want %v", s.Cumulative(time.Second), want)
	}
	if s.Count() != 12 || s.Sum != time.Hour+30*ms+5 {
		t.Errorf("%d, %v", s.Count(), s.Sum)
	}
}

// TestModel compares with looking for the bound.
//
//vigil:norace
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	h := New(100*time.Microsecond, 20)
	want := make([]uint64, 21)
	for range 10_000 {
		d := time.Duration(r.Int64N(1 << r.IntN(50)))
		i := 0
		for i < 20 && d > h.first<<i {
			i++
		}
		want[i]++
		h.Observe(d)
	}
	if got := h.Read().Buckets; !slices.Equal(got, want) {
		t.Errorf("seed %d: %v, want %v", seed, got, want)
	}
}

func BenchmarkObserve(b *testing.B) {
	h := New(100*time.Microsecond, 20)
	b.ReportAllocs()
	for i := range b.N {
		h.Observe(time.Duration(i) * time.Microsecond)
	}
}
