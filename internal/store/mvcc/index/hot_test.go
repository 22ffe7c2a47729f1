package index

import (
	"math/rand/v2"
	"testing"

	"vigil/internal/allocs"
)

func hot() map[string]func() {
	const n = 100_000
	x, key := growthBed(n)
	rng := rand.New(rand.NewPCG(3, 4))
	return map[string]func(){
		"get": func() {
			key = growthKey(key, rng.IntN(n))
			if e, ok := x.Get(text(key)); !ok {
				panic("no key")
			} else if _, ok := e.Newest(); !ok {
				panic("no value")
			}
		},
	}
}

func BenchmarkHot(b *testing.B) { allocs.Benchmark(b, hot()) }

//vigil:norace
func TestAllocations(t *testing.T) { allocs.Test(t, "index", hot()) }
