package mvcc

import (
	"context"
	"math/rand/v2"
	"testing"

	"vigil/internal/allocs"
	"vigil/internal/kv"
)

func hot(t testing.TB) (functions map[string]func(), done func()) {
	const n = 10_000
	s, done := benchStore(t, n, 256, benchKey)
	w, value := s.Writer(), make([]byte, 256)
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = benchKey(i)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	ctx := context.Background()
	get := &kv.RangeRequest{}
	list := &kv.RangeRequest{Key: benchKey(0), End: []byte("/registry/pods0"), Limit: 500}
	put := &kv.PutRequest{Value: value}
	return map[string]func(){
		"get": func() {
			get.Key = keys[rng.IntN(n)]
			if res, err := s.Range(ctx, get); err != nil || res.Count != 1 {
				t.Fatal(err)
			}
		},
		"range of 500 keys": func() {
			if res, err := s.Range(ctx, list); err != nil || res.KVs.Len() != 500 {
				t.Fatal(err)
			}
		},
		"64 puts and a commit": func() {
			for range 64 {
				put.Key = keys[rng.IntN(n)]
				if _, err := w.Put(put, nil); err != nil {
					t.Fatal(err)
				}
			}
			benchCommit(t, w)
		},
	}, done
}

func BenchmarkHot(b *testing.B) {
	functions, done := hot(b)
	defer done()
	allocs.Benchmark(b, functions)
}

//vigil:norace
func TestAllocations(t *testing.T) {
	functions, done := hot(t)
	defer done()
	allocs.Test(t, "mvcc", functions)
}
