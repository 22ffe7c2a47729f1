package stats

import (
	"math"
	"testing"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want Summary
	}{
		{nil, Summary{}},
		{[]float64{math.NaN(), math.Inf(1)}, Summary{}},
		{[]float64{3}, Summary{1, 3, 3, 3}},
		{[]float64{4, 1, 3}, Summary{3, 3, 1, 4}},
		{[]float64{4, 1, 3, 10, math.NaN()}, Summary{4, 3.5, 1, 10}},
	} {
		if got := Of(c.in); got != c.want {
			t.Errorf("Of(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestRatiosAreOfRounds(t *testing.T) {
	// A machine twice as slow in the second round moves both systems, and no ratio.
	a, b := []float64{10, 20, 11}, []float64{20, 40, 22}
	if got := Of(Ratios(a, b)); got.Median != 0.5 || got.Min != 0.5 || got.Max != 0.5 {
		t.Fatalf("got %v", got)
	}
	if got := Of(Ratios([]float64{1, 2}, []float64{0, 4, 5})); got.N != 1 || got.Median != 0.5 {
		t.Fatalf("got %v", got)
	}
}
