package replica

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/member/replica/custody"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// TestCustody: the raft log takes nothing from the first difference on, writes are rejected from
// the third one in a row on, a failed check neither makes a difference nor ends one, and
// everything goes on afterwards.
func TestCustody(t *testing.T) {
	cfg := config(memfs.New())
	cfg.Logger = slog.New(slog.DiscardHandler)
	r := start(t, cfg)
	log := custody.Log{WAL: r.raftLog, Watch: r.custody}
	r.custody.Close() // no checks but these
	gone := &vfs.AwayError{Path: "data/wal"}
	for i, c := range []struct {
		found    error
		log, put bool // accepted
	}{
		{nil, true, true}, {gone, false, true}, {nil, true, true},
		{gone, false, true}, {gone, false, true},
		{fmt.Errorf("%w: a shortage", vfs.ErrUnsure), false, false}, {gone, false, false},
		{vfs.ErrUnsure, false, false}, {gone, false, false}, {nil, true, true},
	} {
		r.custody.Note(c.found)
		err := log.Append(wal.Batch{})
		if (err == nil) != c.log || err != nil && !kv.Shortage(err) {
			t.Errorf("%d: the raft log: %v", i, err)
		}
		for _, err := range []error{r.space.Shortage(), r.space.ShortageToFree()} {
			if (err == nil) != c.put || err != nil && !errors.Is(err, kv.ErrAway) {
				t.Errorf("%d: writes: %v", i, err)
			}
		}
		if said := r.Status().Away; (said == "") != c.put {
			t.Errorf("%d: the status says %q", i, said)
		}
	}
	mustPut(t, r, "a", "b")
}

// TestReceiveBulkAway: a snapshot that comes before any check has seen that the data directory is
// gone makes nothing in its place.
func TestReceiveBulkAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	cfg := config(vfs.OS())
	cfg.WALDir, cfg.HistoryDir = filepath.Join(dir, "wal"), filepath.Join(dir, "history")
	r := start(t, cfg)
	r.custody.Close() // no checks but these
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	st := r.node.Status()
	h := transfer.Header{Cluster: r.clusterID, Term: st.Term + 1,
		At: history.Applied{Term: st.Term + 1, Index: st.Committed + 100}, Revision: 100}
	if err := r.ReceiveBulk(t.Context(), 7, h.Encode(),
		io.NopCloser(strings.NewReader(""))); !errors.Is(err, kv.ErrAway) {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
}

// TestGoneRejectsWhatWaits: when the files are gone for sure, requests that wait for the raft log
// end.
func TestGoneRejectsWhatWaits(t *testing.T) {
	r := start(t, config(memfs.New()))
	r.custody.Close() // no checks but these
	gone := &vfs.AwayError{Path: "data/wal"}
	r.custody.Note(gone)
	ended := make(chan error)
	const writers = 20
	for i := range writers {
		go func() {
			_, err := r.Put(t.Context(),
				&kv.PutRequest{Key: fmt.Append(nil, i), Value: []byte("v")})
			ended <- err
		}()
	}
	await(t, "all wait", func() bool { return r.queue.Pending() == writers })
	for range custody.Sure {
		if r.custody.Note(gone) {
			r.leaveDisk()
		}
	}
	unproposed := 0
	for range writers {
		if err := <-ended; errors.Is(err, kv.ErrAway) {
			unproposed++
		} else if !errors.Is(err, kv.ErrTimeout) {
			t.Error(err)
		}
	}
	if unproposed == writers {
		t.Error("none of the requests was proposed, by their errors")
	}
	r.custody.Note(nil)
	mustPut(t, r, "a", "b")
	// Requests that were proposed may still take effect; the others have none.
	res, err := r.Range(t.Context(),
		&kv.RangeRequest{Key: []byte("0"), End: []byte(":"), CountOnly: true})
	if err != nil || int(res.Count) > writers-unproposed {
		t.Errorf("%d keys of %d that may be there: %v", res.Count, writers-unproposed, err)
	}
}
