package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// BenchmarkPut writes 256-byte values to a member on a real directory and on a file system in
// memory, by one goroutine and by a thousand.
func BenchmarkPut(b *testing.B) {
	for _, fs := range []string{"dir", "mem"} {
		for _, writers := range []int{1, 1000} {
			b.Run(fmt.Sprintf("fs=%s/writers=%d", fs, writers),
				func(b *testing.B) { benchPut(b, fs, writers, nil) })
		}
	}
}

// BenchmarkPutInFlight compares bounds of the groups in flight.
func BenchmarkPutInFlight(b *testing.B) {
	for _, n := range []int{1, 2, 3, 4, 8} {
		for _, writers := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("inflight=%d/writers=%d", n, writers), func(b *testing.B) {
				benchPut(b, "dir", writers, func(c *Config) { c.MaxInFlight = n })
			})
		}
	}
}

func benchConfig(b *testing.B, fs string) Config {
	c := config(vfs.OS())
	dir := b.TempDir()
	c.WALDir, c.HistoryDir = dir+"/wal", dir+"/history"
	if fs == "mem" {
		c.FS = memfs.New()
	}
	c.TickInterval = 100 * time.Millisecond
	c.WALSegmentBytes, c.HistorySegmentBytes, c.SnapshotCount, c.SnapshotCatchUpEntries = 0, 0, 0, 0
	return c
}

func benchPut(b *testing.B, fs string, writers int, change func(*Config)) {
	c := benchConfig(b, fs)
	if change != nil {
		change(&c)
	}
	r := start(b, c)
	value := make([]byte, 256)
	keys := make([][]byte, 10000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%08d", i)
	}
	before := r.Status().Applied
	var left atomic.Int64
	left.Store(int64(b.N))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := r.Put(ctx,
					&kv.PutRequest{Key: keys[rand.IntN(len(keys))], Value: value}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
	b.ReportMetric(float64(b.N)/float64(r.Status().Applied-before), "puts/entry")
	r.Stop(ctx)
}

// BenchmarkLinearizableGet reads one key of a thousand, alone and concurrently with a writer.
func BenchmarkLinearizableGet(b *testing.B) {
	for _, writing := range []bool{false, true} {
		b.Run(fmt.Sprintf("writing=%v", writing), func(b *testing.B) {
			r := start(b, benchConfig(b, "dir"))
			for i := range 1000 {
				mustPut(b, r, fmt.Sprintf("key-%08d", i), string(make([]byte, 256)))
			}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			if writing {
				for range 10 {
					wg.Go(func() {
						for ctx.Err() == nil {
							r.Put(ctx, &kv.PutRequest{Key: []byte("key-00000001"),
								Value: make([]byte, 256)})
						}
					})
				}
			}
			key := []byte("key-00000500")
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if res, err := r.Range(ctx, &kv.RangeRequest{Key: key}); err != nil ||
						res.Count != 1 {
						b.Error(res, err)
						return
					}
				}
			})
			b.StopTimer()
			cancel()
			wg.Wait()
			r.Stop(context.Background())
		})
	}
}

// BenchmarkPutBatch compares one batch of the store for each entry with one for all that wait.
func BenchmarkPutBatch(b *testing.B) {
	for _, bytes := range []int{1, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", bytes), func(b *testing.B) {
			benchPut(b, "mem", 1000, func(c *Config) { c.MaxBatchBytes = bytes })
		})
	}
}
