package wal

import (
	"testing"

	"vigil/internal/allocs"
	"vigil/internal/vfs/memfs"
)

func hot(t testing.TB) map[string]func() {
	const n = 16
	w := create(t, Options{FS: discard{memfs.New()}, Dir: testDir, ID: testID}, Start{})
	t.Cleanup(func() { must(t, w.Close()) })
	pool := entries(1, 1, n, 256)
	hs := hard(1, 1, 1)
	next := uint64(1)
	return map[string]func(){
		"append 16 entries": func() {
			for _, e := range pool {
				*e.Index = next
				next++
			}
			must(t, w.Append(Batch{HardState: hs, Entries: pool, Sync: true}))
			if next%(1<<12) < n && next > 1<<11 {
				must(t, w.TruncateBefore(next-1<<11))
			}
		},
	}
}

func BenchmarkHot(b *testing.B) { allocs.Benchmark(b, hot(b)) }

//vigil:norace
func TestAllocations(t *testing.T) { allocs.Test(t, "wal", hot(t)) }
