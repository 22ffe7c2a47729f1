package history

import (
	"testing"
	"testing/synctest"

	"vigil/internal/vfs/memfs"
)

// What is allocated ahead is large while much is written, is cut when that is over, and grows
// again. No time passes while the log is busy, so the resizer does not replace the rates of the
// test by what it measures.
func TestFit(t *testing.T) { synctest.Test(t, fit) }

func fit(t *testing.T) {
	o := testOptions(memfs.New())
	o.SegmentBytes = 32 << 20
	l, m := create(t, o)
	ahead := func() (next, reserve int64) {
		t.Helper()
		l.await(func() bool { return l.alloc.bothLocked() && !l.alloc.mu.fitting })
		l.alloc.mu.Lock()
		defer l.alloc.mu.Unlock()
		next, reserve = l.alloc.mu.next.Alloc, l.alloc.mu.reserveSize
		for _, f := range []struct {
			size interface{ Size() (int64, error) }
			want int64
		}{{l.alloc.mu.next.File, next}, {l.alloc.mu.reserve, reserve}} {
			if n, err := f.size.Size(); err != nil || n != f.want {
				t.Fatalf("a file of %d bytes, noted are %d: %v", n, f.want, err)
			}
		}
		return next, reserve
	}
	want := func(what string, size int64) {
		t.Helper()
		if next, reserve := ahead(); next != size || reserve != size {
			t.Fatalf("%s: the next segment has %d bytes, the reserve %d, want %d", what,
				next, reserve, size)
		}
	}
	want("at first", smallSegment)
	l.sizes.rate.Store(100 << 20)
	l.alloc.resizeFiles()
	if next, reserve := ahead(); next != smallSegment || reserve != fastSegment {
		t.Fatalf("in a hurry: the next segment has %d bytes, the reserve %d", next, reserve)
	}
	dead := compactSome(t, l, m)
	if ok, err := l.Roll(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	l.sizes.rate.Store(100 << 20)
	want("in a hurry", fastSegment)
	l.sizes.rate.Store(0)
	l.alloc.resizeFiles()
	want("when it is over", smallSegment)
	// The one that was cut is as good as any.
	l.WaitNext()
	if ok, err := l.Roll(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	more := compactSome(t, l, m)
	if err := l.Dead(append(dead, more...)); err != nil {
		t.Fatal(err)
	}
	waitReclaimed(t, l)
	if err := verifyLeft(l, m); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := verifyLeft(l, m); err != nil {
		t.Fatal(err)
	}
}
