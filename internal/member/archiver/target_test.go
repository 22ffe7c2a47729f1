package archiver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/debugpage"
	"vigil/internal/store/archive"
)

// TestTwoClustersAtOnce: two clusters begin in one empty bucket at the same time. One of them
// archives, the other is refused and writes nothing.
func TestTwoClustersAtOnce(t *testing.T) {
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			b := newBucket(t)
			slow := &faulty{Bucket: b, before: func(int, string, string) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			}}
			var worlds []*world
			for i := range 2 {
				w := newWorld(t, 1)
				defer w.close()
				worlds = append(worlds, w)
				w.members[0].begin(slow, small, func(o *Options) { o.ClusterID = uint64(0xa0 + i) })
			}
			for range 30 {
				for _, w := range worlds {
					w.put("k", "v")
				}
				time.Sleep(time.Second)
			}
			owner := uint64(readAll(t, b).id.Cluster)
			for i, w := range worlds {
				st := w.members[0].a.Status()
				if uint64(0xa0+i) == owner {
					w.awaitArchived(w.members[0], time.Minute)
					w.verify(b, 2) // all objects are the owner's, or it would fail
				} else if st.State != debugpage.ArchiveRefused || st.Objects > 0 ||
					!strings.Contains(st.Error, fmt.Sprintf("it belongs to cluster %x", owner)) {
					t.Errorf("the other cluster: %+v", st)
				}
			}
		})
	}
}

// TestMissingRights: a right is missing. The state says which one, nothing is written or lost, and
// the member archives as soon as it has the right.
func TestMissingRights(t *testing.T) {
	for _, op := range []string{"put", "get", "list"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(t, 1), newBucket(t)
				defer w.close()
				f := &faulty{Bucket: b, before: func(_ int, got, key string) error {
					if got == op {
						return fmt.Errorf("%s %s: %w", op, key, bucket.ErrDenied)
					}
					return nil
				}}
				m := w.members[0]
				m.begin(f, small)
				for range 60 {
					w.put("k", "v")
					time.Sleep(time.Second)
				}
				st := m.a.Status()
				if st.State == debugpage.ArchiveSending || st.FailingSeconds < 30 ||
					!strings.Contains(st.Error, bucket.ErrDenied.Error()) ||
					!strings.Contains(st.Error, op) || st.ArchivedIndex > 0 {
					t.Errorf("%+v", st)
				}
				for o, err := range bucket.All(context.Background(), b, "", "") {
					if err != nil || o.Key != archive.IdentityName {
						t.Errorf("%v, %v", o, err)
					}
				}
				f.mu.Lock()
				f.before = nil
				f.mu.Unlock()
				w.awaitArchived(m, time.Minute)
				w.verify(b, 1)
				if st := m.a.Status(); st.Gaps > 0 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}
