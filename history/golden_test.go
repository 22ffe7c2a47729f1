package history

import (
	"os"
	"path/filepath"
	"testing"

	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// TestGolden opens what the programs of every format version so far have written. To add a version
// run it with VIGIL_HISTORY_GOLDEN set, which writes testdata/vN anew; an old one must never change.
func TestGolden(t *testing.T) {
	d, m := small(t, 9)
	if os.Getenv("VIGIL_HISTORY_GOLDEN") != "" {
		name, err := filepath.Abs("testdata/v1")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
		d.write(t, vfs.OS(), name)
	}
	dirs, err := filepath.Glob("testdata/v*")
	if err != nil || len(dirs) != formatVersion {
		t.Fatal(dirs, err)
	}
	for _, name := range dirs {
		o := testOptions(memfs.New())
		o.SegmentBytes = minSegmentBytes
		readDir(t, vfs.OS(), name).write(t, o.FS, o.Dir)
		l, err := Open(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := verifyLog(l, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b := batch{recs: []rec{{rev: m.last(), data: []byte("more")}}, applied: Applied{9, 900}}
		b.recs[0].rev.Main++
		if err := appendBatch(l, b); err != nil {
			t.Fatal(err)
		}
		if err := l.Commit(b.applied); err != nil {
			t.Fatal(err)
		}
		more := &model{batches: append(m.batches[:len(m.batches):len(m.batches)], b)}
		if err := verifyLog(l, more); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
