package hist

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestIndexCoversEveryValue(t *testing.T) {
	last := -1
	for _, v := range []int64{0, 1, 63, 64, 127, 128, 129, 130, 255, 256, 1000, 1 << 20,
		1<<20 + 1<<14, 1 << 40, math.MaxInt64} {
		i := index(v)
		if i < last || i >= buckets {
			t.Fatalf("index(%d) = %d after %d, of %d", v, i, last, buckets)
		}
		last = i
		if hi := highest(i); hi < v || float64(hi-v) > float64(v)/64 {
			t.Fatalf("value %d reads back as %d", v, hi)
		}
	}
	for i := range buckets {
		if hi := highest(i); index(hi) != i {
			t.Fatalf("bucket %d ends at %d, which is in bucket %d", i, hi, index(hi))
		}
	}
}

func TestQuantilesAgainstSorting(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var whole Hist
		parts := make([]Hist, 3)
		var all []time.Duration
		for range 1 + rng.IntN(5000) {
			d := time.Duration(math.Exp(rng.Float64() * 25))
			all = append(all, d)
			whole.Record(d)
			parts[rng.IntN(3)].Record(d)
		}
		slices.Sort(all)
		var merged Hist
		for i := range parts {
			merged.Merge(&parts[i])
		}
		for _, h := range []*Hist{&whole, &merged} {
			if h.Count() != uint64(len(all)) || h.Min() != all[0] || h.Max() != all[len(all)-1] {
				t.Fatalf("seed %d: count %d min %v max %v", seed, h.Count(), h.Min(), h.Max())
			}
			for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.99, 0.999, 1} {
				rank := min(max(int(q*float64(len(all))+0.5), 1), len(all))
				want, got := all[rank-1], h.Quantile(q)
				if got < want || float64(got-want) > float64(want)/64+1 {
					t.Fatalf("seed %d: quantile %v of %d is %v, want %v", seed, q,
						len(all), got, want)
				}
			}
		}
	}
}

func TestEmpty(t *testing.T) {
	var h Hist
	h.Merge(new(Hist))
	if h.Quantile(0.5) != 0 || h.Mean() != 0 || h.Max() != 0 {
		t.Fatal("an empty histogram has values")
	}
	h.Record(-5)
	if h.Count() != 1 || h.Max() != 0 {
		t.Fatal("a negative duration is not counted as 0")
	}
	h.RecordN(10, 3)
	if h.Count() != 4 || h.Mean() != 7 {
		t.Fatalf("count %d mean %d", h.Count(), h.Mean())
	}
}
