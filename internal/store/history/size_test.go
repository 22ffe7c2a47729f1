package history

import (
	"errors"
	"fmt"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// What is live is what is left once the dead records are gone: their places in the offset tables do
// not count either.
func TestLiveSize(t *testing.T) {
	for _, gap := range []int64{1, 1000} {
		for _, keep := range []int{0, 2, 10} {
			t.Run(fmt.Sprintf("gap %d, one of %d kept", gap, keep), func(t *testing.T) {
				o := testOptions(memfs.New())
				o.SegmentBytes = 64 << 10
				l, m := create(t, o)
				l.work.stop() // sizes are compared before anything is rewritten
				var dead []DeadRecord
				for i := range 200 {
					b := batch{applied: Applied{Term: 1, Index: uint64(i) + 2}}
					for j := range 50 {
						rev := kv.Rev{Main: 1 + int64(i)*gap, Sub: int64(j)}
						b.recs = append(b.recs, rec{rev: rev, data: make([]byte, 10)})
						if keep == 0 || (50*i+j)%keep != 0 {
							dead = append(dead, DeadRecord{Rev: rev})
						}
					}
					m.batches = append(m.batches, b)
					if err := errors.Join(appendBatch(l, b), l.Commit(b.applied)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				if err := l.Dead(dead); err != nil {
					t.Fatal(err)
				}
				total, live := l.Size()
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				l, err := Open(o)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Dead(dead); err != nil {
					t.Fatal(err)
				}
				l.WaitNext()
				if ok, err := l.Roll(); !ok || err != nil {
					t.Fatal(ok, err)
				}
				if _, err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				l.Reclaim()
				waitReclaimed(t, l)
				left, _ := l.Size()
				t.Logf("%d bytes, %d of them live, %d left", total, live, left)
				// A table that gets holes takes up to 12 bytes more for each record.
				kept := int64(len(m.recs()) - len(dead))
				if diff := live - left; diff > total/20 || diff < -total/20-12*kept {
					t.Errorf("of %d bytes %d were live, and %d were left", total, live, left)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
