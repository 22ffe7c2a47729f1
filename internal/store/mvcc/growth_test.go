package mvcc

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"vigil/internal/kv"
)

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

// BenchmarkStoreGrowth is a put and a get of a whole store, with its log, over more and more keys.
func BenchmarkStoreGrowth(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			s, done := benchStore(b, n, 64, func(i int) []byte { return growthKey(nil, i) })
			defer done()
			w, value, key := s.Writer(), make([]byte, 64), []byte(nil)
			rng := rand.New(rand.NewPCG(3, 4))
			b.Run("put", func(b *testing.B) {
				b.ReportAllocs()
				began := cpuTime()
				for i := 1; b.Loop(); i++ {
					key = growthKey(key, rng.IntN(n))
					if _, err := w.Put(&kv.PutRequest{Key: key, Value: value}, nil); err != nil {
						b.Fatal(err)
					}
					if i%64 == 0 {
						benchCommit(b, w)
					}
				}
				b.ReportMetric(float64(cpuTime()-began)/float64(b.N), "cpu-ns/op")
				benchCommit(b, w)
			})
			b.Run("get", func(b *testing.B) {
				b.ReportAllocs()
				began := cpuTime()
				for b.Loop() {
					key = growthKey(key, rng.IntN(n))
					if v, err := s.Get(key, 0); err != nil || v == nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(cpuTime()-began)/float64(b.N), "cpu-ns/op")
			})
		})
	}
}
