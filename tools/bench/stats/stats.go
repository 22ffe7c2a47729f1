// Package stats summarizes the measurements of rounds.
//
// Rounds are compared by their own ratios: both systems of a round ran within the same minute of
// the same machine, so the median of the rounds' ratios is not moved by a machine that slows down
// for some of them.
package stats

import (
	"math"
	"slices"
)

// Summary describes a list of numbers. NaN and infinite ones are left out.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Of summarizes values. With none left, all fields are 0.
func Of(values []float64) Summary {
	v := make([]float64, 0, len(values))
	for _, x := range values {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return Summary{}
	}
	slices.Sort(v)
	m := v[len(v)/2]
	if len(v)%2 == 0 {
		m = (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return Summary{N: len(v), Median: m, Min: v[0], Max: v[len(v)-1]}
}

// Ratios divides round by round. A round that lacks either number, or divides by 0, gives NaN.
func Ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		if b[i] == 0 {
			out[i] = math.NaN()
			continue
		}
		out[i] = a[i] / b[i]
	}
	return out
}
