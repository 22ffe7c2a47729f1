package history

import (
	"os"
	"path/filepath"
	"testing"

	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// TestGolden opens the directory in testdata: the format has not changed under its version. A new
// version is written with VIGIL_HISTORY_GOLDEN set.
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
	if err != nil || len(dirs) != format.Version {
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
		b := batch{recs: []rec{{rev: m.last(), data: []byte("more")}},
			applied: Applied{Term: 9, Index: 900}}
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

// merged returns a directory whose segments were rewritten.
func merged(t *testing.T) (dir, *model) {
	t.Helper()
	o := testOptions(memfs.New())
	o.SegmentBytes = minSegmentBytes
	l, m := create(t, o)
	if err := l.Dead(compactSome(t, l, m)); err != nil {
		t.Fatal(err)
	}
	l.Reclaim()
	waitReclaimed(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return readDir(t, o.FS, o.Dir), m
}

// TestGoldenMerged does the same with segments that were rewritten.
func TestGoldenMerged(t *testing.T) {
	d, m := merged(t)
	if os.Getenv("VIGIL_HISTORY_GOLDEN") != "" {
		name, err := filepath.Abs("testdata/merged-v1")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
		d.write(t, vfs.OS(), name)
	}
	dirs, err := filepath.Glob("testdata/merged-v*")
	if err != nil || len(dirs) != format.Version {
		t.Fatal(dirs, err)
	}
	for _, name := range dirs {
		o := testOptions(memfs.New())
		o.SegmentBytes = minSegmentBytes
		image := readDir(t, vfs.OS(), name)
		image.write(t, o.FS, o.Dir)
		rewritten := 0
		files, err := segfile.List(o.FS, o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files.Sealed {
			if f.Generation > 0 && f.Last > f.First {
				rewritten++
			}
		}
		if rewritten == 0 {
			t.Fatalf("%s holds no merged segment", name)
		}
		l, err := Open(o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := verifyLeft(l, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// They can be merged on.
		if err := l.Dead(append(m.dead(), compactSome(t, l, m)...)); err != nil {
			t.Fatal(err)
		}
		l.Reclaim()
		waitReclaimed(t, l)
		if err := verifyLeft(l, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
