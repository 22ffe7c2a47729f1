package index

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"vigil/internal/kv"
)

// growthBed is an index with n keys of 32 bytes that were added in random order, each with one change. It has no log.
func growthBed(n int) (*Index, []byte) {
	x := New()
	rng := rand.New(rand.NewPCG(1, 2))
	key := make([]byte, 0, 64)
	for i, at := range rng.Perm(n) {
		key = growthKey(key, at)
		x.Append(x.Add(text(key)), NewPut(kv.Rev{Main: int64(i) + 2}, 1))
	}
	return x, key
}

// growthKey writes the key of a number, of 32 bytes.
func growthKey(dst []byte, i int) []byte {
	dst = append(dst[:0], "/registry/pods/ns-000/p-00000000"...)
	for at, n := 20, i%1000; n > 0; at, n = at-1, n/10 {
		dst[at] += byte(n % 10)
	}
	for at, n := 31, i; n > 0; at, n = at-1, n/10 {
		dst[at] += byte(n % 10)
	}
	return dst
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// text is a key for a lookup.
func text(key []byte) string { return unsafe.String(unsafe.SliceData(key), len(key)) }

// heapNow returns the bytes and the number of objects of the heap that are in use.
func heapNow() (bytes, objects uint64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.HeapObjects
}

// BenchmarkGrowth is what the index costs with more and more keys: memory, heap objects, and the processor time of everything
// (garbage collections too) of a put, a get and a list of 500 keys, and of a garbage collection. VIGIL_BENCH_KEYS=10000000 adds a larger one.
func BenchmarkGrowth(b *testing.B) {
	sizes := []int{10_000, 100_000, 1_000_000}
	var more int
	if _, err := fmt.Sscan(os.Getenv("VIGIL_BENCH_KEYS"), &more); err == nil {
		sizes = append(sizes, more)
	}
	for _, n := range sizes {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			bytes, objects := heapNow()
			x, key := growthBed(n)
			nowBytes, nowObjects := heapNow()
			perKey := func(b *testing.B) {
				b.ReportMetric(float64(nowBytes-bytes)/float64(n), "B/key")
				b.ReportMetric(float64(nowObjects-objects)/float64(n), "objects/key")
			}
			rng := rand.New(rand.NewPCG(3, 4))
			cpu := func(b *testing.B, run func()) {
				b.ReportAllocs()
				began := cpuTime()
				for b.Loop() {
					run()
				}
				b.ReportMetric(float64(cpuTime()-began)/float64(b.N), "cpu-ns/op")
				perKey(b)
			}
			tree := x.Tree.Snapshot()
			b.Run("collection", func(b *testing.B) { cpu(b, runtime.GC) })
			b.Run("get", func(b *testing.B) {
				cpu(b, func() {
					key = growthKey(key, rng.IntN(n))
					if e, ok := Of(tree, text(key)); !ok {
						b.Fatalf("no key %q", key)
					} else if _, ok := e.Newest(); !ok {
						b.Fatalf("%q does not exist", key)
					}
				})
			})
			b.Run("list500", func(b *testing.B) {
				cpu(b, func() {
					key = growthKey(key, rng.IntN(n))
					it := tree.Range(text(key), "")
					for i := 0; i < 500 && it.Next(); i++ {
						if _, ok := At(&it).Newest(); !ok {
							b.Fatalf("%q does not exist", it.Key())
						}
					}
				})
			})
			rev := int64(n) + 2
			b.Run("put", func(b *testing.B) {
				cpu(b, func() {
					key = growthKey(key, rng.IntN(n))
					e, _ := x.Get(text(key))
					s, _ := e.Newest()
					rev++
					x.Append(e, NewPut(kv.Rev{Main: rev}, s.Version+1))
				})
			})
			b.Run("create", func(b *testing.B) {
				next := n
				cpu(b, func() {
					if next%64 == 0 {
						tree = x.Tree.Snapshot()
					}
					key = growthKey(key, next)
					next++
					rev++
					x.Append(x.Add(text(key)), NewPut(kv.Rev{Main: rev}, 1))
				})
			})
		})
	}
}
