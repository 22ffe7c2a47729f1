package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// inTime repeats a request that a busy machine has no time for: the timeouts of the test are short.
func inTime(t *testing.T, what string, request func() error) {
	t.Helper()
	for began := time.Now(); ; {
		err := request()
		if err == nil {
			return
		}
		if !errors.Is(err, kv.ErrTimeout) || time.Since(began) > patience {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// The disk of a quiet member fills up at once, with as many requests on their way as there may be.
// Requests that free space continue: nothing has to be freed from outside.
func TestFullDiskUnderBurst(t *testing.T) {
	for _, size := range []int{20 << 10, 300 << 10, 1500 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			disk := faultfs.New(memfs.New(), nil)
			c := config(disk)
			c.WALSegmentBytes, c.HistorySegmentBytes = 0, 0
			c.MaxRequestBytes = 2 << 20
			c.RequestTimeout = 2 * time.Second
			r := start(t, c)
			for i := range 20 {
				mustPut(t, r, fmt.Sprint("old", i), "v")
			}
			await(t, "space that is allocated ahead", func() bool {
				return allocated(r) && r.space.Shortage() == nil
			})
			disk.SetFree(0)
			value := make([]byte, size)
			var writers sync.WaitGroup
			for i := range 60 << 20 / size {
				writers.Go(func() {
					_, err := r.Put(context.Background(),
						&kv.PutRequest{Key: fmt.Appendf(nil, "new%d", i), Value: value})
					if err != nil && !errors.Is(err, kv.ErrNoSpace) &&
						!errors.Is(err, kv.ErrTimeout) && !errors.Is(err, kv.ErrTooManyRequests) {
						t.Error(err)
					}
				})
			}
			writers.Wait()
			began := time.Now()
			inTime(t, "a deletion", func() error {
				_, err := r.DeleteRange(t.Context(),
					&kv.DeleteRangeRequest{Key: []byte("new"), End: []byte("nex")})
				return err
			})
			rev := r.Status().Revision
			inTime(t, "a compaction", func() error {
				_, err := r.Compact(t.Context(), &kv.CompactRequest{Revision: rev})
				if errors.Is(err, kv.ErrCompacted) {
					return nil // by an attempt that timed out
				}
				return err
			})
			t.Logf("deleted and compacted after %v", time.Since(began))
			await(t, "room", func() bool {
				_, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k")})
				return err == nil
			})
			t.Logf("room after %v", time.Since(began))
		})
	}
}
