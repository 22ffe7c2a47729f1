package replica

import (
	"errors"
	"fmt"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// While writes and compactions go on, no status has an applied index above the newest one, or a
// compact revision above the newest revision.
func TestStatusBelongsTogether(t *testing.T) {
	r := start(t, config(memfs.New()))
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 2000 && err == nil; i++ {
			var put *kv.PutResult
			if put, err = r.Put(t.Context(),
				&kv.PutRequest{Key: fmt.Appendf(nil, "k%d", i%10)}); err == nil {
				_, err = r.Compact(t.Context(), &kv.CompactRequest{Revision: put.Revision})
			}
		}
		done <- err
	}()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, kv.ErrCompacted) {
				t.Error(err)
			}
			t.Logf("%d looks", n)
			return
		default:
		}
		if st := r.Status(); st.Applied > st.RaftIndex || st.CompactRevision > st.Revision ||
			st.InUse > st.Size {
			t.Fatalf("look %d: %+v", n, st)
		}
	}
}
