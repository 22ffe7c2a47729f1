package archiver

import (
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/debugpage"
	"vigil/internal/state/lineage"
)

// TestManyTerms: so many leaders follow each other in a cluster that writes nothing that the store
// has forgotten the claims of the first ones. The archive stays its own.
func TestManyTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		w := newWorld(t, 1)
		defer w.close()
		m := w.members[0]
		m.begin(b)
		w.put("a", "b")
		w.awaitBase(b, w.last(), time.Minute)
		for range lineage.MaxTerms + 10 {
			w.elect()
			time.Sleep(2 * orderInterval)
		}
		w.awaitArchived(m, time.Minute)
		m.end()
		w.elect()
		m.begin(b)
		time.Sleep(time.Minute)
		if st := m.a.Status(); st.State == debugpage.ArchiveRefused {
			t.Fatalf("%+v", st)
		}
		w.awaitArchived(m, time.Minute)
	})
}
