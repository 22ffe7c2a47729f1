package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// TestCustody: the raft log takes nothing from the first difference on, writes are rejected from the third one in a row on, what is not
// known changes nothing, and everything goes on afterwards.
func TestCustody(t *testing.T) {
	cfg := config(memfs.New())
	cfg.Logger = slog.New(slog.DiscardHandler)
	r := start(t, cfg)
	sp := &r.space
	log := guardedLog{r.raftLog, &sp.custody}
	await(t, "there is no check but these", func() bool { return sp.custody.running.CompareAndSwap(false, true) })
	gone := &vfs.AwayError{Path: "data/wal"}
	for i, c := range []struct {
		found    error
		log, put bool // accepted
	}{
		{nil, true, true}, {gone, false, true}, {nil, true, true},
		{gone, false, true}, {gone, false, true}, {fmt.Errorf("%w: a shortage", vfs.ErrUnsure), false, true}, {gone, false, false},
		{vfs.ErrUnsure, false, false}, {gone, false, false}, {nil, true, true},
	} {
		sp.noteCustody(c.found)
		err := log.Append(wal.Batch{})
		if (err == nil) != c.log || err != nil && !kv.Shortage(err) {
			t.Errorf("%d: the raft log: %v", i, err)
		}
		for _, err := range []error{sp.Shortage(), sp.roomToFree()} {
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
