package mvcc

import (
	"fmt"
	"runtime"
	"testing"
	"vigil/internal/kv"
)

// TestPreviousPairsGrow: the buffer of many previous pairs grows in few steps: puts wait while the pairs are read.
//
//vigil:norace
func TestPreviousPairsGrow(t *testing.T) {
	for _, size := range []int{100, 1 << 10, 100 << 10} {
		b := newBed(t, Options{}, 1<<20)
		w := b.Writer()
		n := (16 << 20) / size
		for i := range n {
			if _, err := w.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "k%06d", i), Value: make([]byte, size)}, nil); err != nil {
				t.Fatal(err)
			}
			if i%100 == 99 {
				b.commit(t)
			}
		}
		b.commit(t)
		all := &kv.DeleteRangeRequest{Key: []byte("k"), End: []byte("l")}
		allocated := func(prev bool) (uint64, int) {
			var before, after runtime.MemStats
			m := w.mark()
			if err := w.beginRequest(); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&before)
			var res kv.DeleteRangeResult
			all.PrevKV = prev
			if err := w.deleteRange(all, &res); err != nil || res.Deleted != int64(n) {
				t.Fatal(res.Deleted, err)
			}
			runtime.ReadMemStats(&after)
			w.undo(m)
			return after.TotalAlloc - before.TotalAlloc, len(res.PrevKVs.Buf)
		}
		without, _ := allocated(false)
		with, bytes := allocated(true)
		t.Logf("values of %d bytes: %d kB allocated for %d kB of pairs", size, (with-without)>>10, bytes>>10)
		if with-without > 5*uint64(bytes) { // half of it without the race detector
			t.Errorf("%d bytes were allocated for %d bytes of pairs of %d bytes", with-without, bytes, size)
		}
		b.commit(t)
		b.close(t)
	}
}
