package wal

import (
	"errors"
	"path/filepath"
	"testing"

	"vigil/internal/vfs"
)

// TestOpenTwice: a log that is open cannot be opened a second time.
func TestOpenTwice(t *testing.T) {
	o := Options{FS: vfs.OS(), Dir: filepath.Join(t.TempDir(), "wal"), ID: testID}
	w := create(t, o, Start{})
	if _, err := Open(o); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second time: %v", err)
	}
	must(t, w.Append(Batch{Entries: entries(1, 1, 8, 200), Sync: true}))
	must(t, w.Close())
	w, err := Open(o)
	must(t, err)
	must(t, w.Close())
}
