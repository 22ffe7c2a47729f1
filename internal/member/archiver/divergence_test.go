package archiver

import (
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/debugpage"
)

// TestDivergedHistory: a cluster that was forced to begin again from a member with an older log, or
// whose disk was set back, has committed more than the archive has, and other entries at the same
// indexes. Its entries must not continue the entries of the archive.
func TestDivergedHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Bucket: newBucket(t)}
		before := newWorld(t, 1)
		before.members[0].begin(f, small)
		for range 60 {
			before.put("a", "b")
		}
		time.Sleep(3 * time.Second)
		for range 40 {
			before.put("a", "b")
		}
		before.awaitArchived(before.members[0], time.Minute)
		before.close()

		w := newWorld(t, 1)
		defer w.close()
		for range 60 {
			w.put("a", "b")
		}
		w.mu.Lock()
		w.term = 3
		w.mu.Unlock()
		for range 100 {
			w.put("c", "d")
		}
		f.before = func(_ int, op, key string) error {
			if op == "put" {
				t.Errorf("%s was written", key)
			}
			return nil
		}
		w.members[0].begin(f, small)
		for range 10 {
			time.Sleep(4 * time.Second)
			w.put("c", "d")
		}
		st := w.members[0].a.Status()
		if st.State != debugpage.ArchiveRefused || st.Error == "" {
			t.Fatalf("status %+v", st)
		}
		t.Log(st.Error)
	})
}
