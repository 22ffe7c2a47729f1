package history

import (
	"testing"

	"vigil/internal/allocs"
	"vigil/internal/kv"
)

func hot(t testing.TB) map[string]func() {
	l := filled(t, 1, 0)
	data := make([]byte, 256)
	next := int64(2)
	return map[string]func(){
		"100 records and a commit": func() {
			for range 100 {
				if _, err := l.AppendKV(kv.Rev{Main: next}, false, data); err != nil {
					t.Fatal(err)
				}
				next++
			}
			if err := l.Commit(Applied{Term: 1, Index: uint64(next)}); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func BenchmarkHot(b *testing.B) { allocs.Benchmark(b, hot(b)) }

//vigil:norace
func TestAllocations(t *testing.T) { allocs.Test(t, "history", hot(t)) }
