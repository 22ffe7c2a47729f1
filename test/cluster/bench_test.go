package cluster

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/test/proc"
)

// BenchmarkPut is puts of 256 bytes by clients at all members of a cluster of three, each waiting
// for its answer. It reports the processor time that the members take for one put together.
func BenchmarkPut(b *testing.B) {
	for _, clients := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			g := start(b, 3)
			value := strings.Repeat("v", 256)
			cpu := func() (d time.Duration) {
				for _, m := range g.list {
					d += cpuTime(b, m.Server)
				}
				return d
			}
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			before := cpu()
			for i := range clients {
				c := g.list[i%3].client
				wg.Go(func() {
					for {
						n := next.Add(1)
						if n > int64(b.N) {
							return
						}
						if _, err := c.Put(context.Background(), fmt.Sprintf("k%d", n%10_000),
							value); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
			b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/put")
		})
	}
}

// cpuTime is what a process has used.
func cpuTime(t testing.TB, s *proc.Server) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	// After the name, which may contain any byte: utime and stime are the fields 14 and 15.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	var ticks int64
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
