package wal

import (
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/vfs/memfs"
)

// used returns the bytes of the files of a log.
func used(t testing.TB, fs *memfs.FS) (n int64) {
	t.Helper()
	names, err := fs.List(testDir)
	must(t, err)
	for _, name := range names {
		st, err := fs.Stat(testDir + "/" + name)
		must(t, err)
		n += st.Size()
	}
	return n
}

// A log that has taken nothing is small. Under load its segments grow to the size that was asked
// for, and when the load is over they shrink again.
func TestSegmentsFollowTheLoad(t *testing.T) { synctest.Test(t, followTheLoad) }

func followTheLoad(t *testing.T) {
	mem := memfs.New()
	o := Options{FS: mem, Dir: testDir, ID: testID, SegmentBytes: 16 << 20}
	w := create(t, o, Start{})
	w.run = func(step func()) { step() }
	index := uint64(0)
	add := func(size int) {
		t.Helper()
		index++
		must(t, w.Append(Batch{Entries: entries(index, 1, 1, size), Sync: true}))
	}
	add(100)
	if n := used(t, mem); n > 2*smallSegment {
		t.Errorf("a fresh log takes %d bytes", n)
	}
	rolled := func() uint64 { return w.Metrics().Rolled }
	for from := rolled(); rolled() < from+3; {
		add(1 << 20)
	}
	if n := w.spares.size.Load(); n != o.SegmentBytes {
		t.Errorf("under load segments of %d bytes are made", n)
	}
	if w.wr.active.size != o.SegmentBytes {
		t.Errorf("the active segment has %d bytes", w.wr.active.size)
	}
	// Full segments that are given up are used again.
	must(t, w.TruncateBefore(index))
	for range 8 {
		time.Sleep(24 * time.Hour)
		for from := rolled(); rolled() == from; {
			add(1 << 20)
		}
		must(t, w.TruncateBefore(index))
	}
	add(100)
	must(t, w.TruncateBefore(index+1))
	if n := used(t, mem); n > 5*smallSegment {
		t.Errorf("after a quiet week the log takes %d bytes", n)
	}
	must(t, w.Close())
	w = reopen(t, o)
	if last, _ := w.LastIndex(); last != index {
		t.Errorf("the log ends at %d, want %d", last, index)
	}
	must(t, w.Close())
}
