package history

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// round runs a scrubber to the end of a round.
func round(t testing.TB, s *Scrubber) (all []Scrubbed) {
	t.Helper()
	for {
		res, err := s.Next(tContext)
		if err != nil {
			t.Fatal(err)
		}
		if res.File == "" {
			return all
		}
		all = append(all, res)
	}
}

// Every byte of a sealed file is one that the scrubber misses when it is flipped, on a disk whose
// files are mapped too, where memory may still hold the good one.
func TestScrubFindsEveryFlip(t *testing.T) {
	d, _ := small(t, 9)
	o := testOptions(vfs.OS())
	o.Dir = filepath.Join(t.TempDir(), "history")
	d.write(t, o.FS, o.Dir)
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := l.NewScrubber(1 << 40)
	var sealed []Scrubbed
	for _, res := range round(t, s) {
		if res.Damage != nil {
			t.Fatal(res.Damage)
		}
		if st, err := os.Stat(res.File); err != nil || res.Bytes < st.Size() {
			t.Fatalf("%d bytes read of %s", res.Bytes, res.File)
		}
		sealed = append(sealed, res)
	}
	if len(sealed) < 2 {
		t.Fatal(sealed)
	}
	name := sealed[0].File
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, _ := f.Stat()
	step := int64(rounds(t, "VIGIL_HISTORY_FLIP_STRIDE", 97))
	for off := int64(0); off < st.Size(); off += step {
		var b [1]byte
		if _, err := f.ReadAt(b[:], off); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1 << (off % 8)
		if _, err := f.WriteAt(b[:], off); err != nil {
			t.Fatal(err)
		}
		all := round(t, s)
		if len(all) != len(sealed) {
			t.Fatalf("%d segments in a round, want %d", len(all), len(sealed))
		}
		for _, res := range all {
			if bad := res.File == name; bad != (res.Damage != nil) {
				t.Fatalf("byte %d of %s is bad, and of %s the scrubber says %v", off, name,
					res.File, res.Damage)
			}
		}
		if err := all[0].Damage; !errors.Is(err, kv.ErrCorrupt) && !errors.Is(err, ErrVersion) ||
			!strings.Contains(err.Error(), name) {
			t.Fatalf("byte %d: %v", off, err)
		}
		b[0] ^= 1 << (off % 8)
		if _, err := f.WriteAt(b[:], off); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(name, st.Size()/2); err != nil {
		t.Fatal(err)
	}
	if err := round(t, s)[0].Damage; !errors.Is(err, kv.ErrCorrupt) {
		t.Fatalf("cut: %v", err)
	}
	// One that is gone and was not replaced is lost with the end of the process.
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if all := round(t, s); len(all) != len(sealed) || !errors.Is(all[0].Damage, kv.ErrCorrupt) {
		t.Fatalf("with a file gone: %+v", all)
	}
}

// A disk that does not deliver is damage with file and offset.
func TestScrubReadError(t *testing.T) {
	d, _ := small(t, 9)
	mem := memfs.New()
	var bad atomic.Bool
	o := testOptions(faultfs.New(mem, func(op faultfs.Op, name string) faultfs.Fault {
		if bad.Load() && op == faultfs.OpRead {
			return faultfs.Fail
		}
		return faultfs.None
	}))
	d.write(t, mem, o.Dir)
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := l.NewScrubber(1 << 40)
	round(t, s)
	bad.Store(true)
	for _, res := range round(t, s) {
		if err := res.Damage; !errors.Is(err, faultfs.ErrInjected) ||
			!strings.Contains(err.Error(), res.File) || !strings.Contains(err.Error(), "offset") {
			t.Error(err)
		}
	}
	bad.Store(false)
	for _, res := range round(t, s) {
		if res.Damage != nil {
			t.Error(res.Damage)
		}
	}
	ctx, cancel := context.WithCancel(tContext)
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// An error that says nothing about what is in the file is not damage, and a round in which one was
// met says so.
func TestScrubIsNotDamage(t *testing.T) {
	d, _ := small(t, 9)
	mem := memfs.New()
	var fault atomic.Int64
	var at atomic.Int64
	o := testOptions(faultfs.New(mem, func(op faultfs.Op, name string) faultfs.Fault {
		if int64(op) == at.Load() && strings.HasSuffix(name, format.SealedSuffix) {
			return faultfs.Fault(fault.Load())
		}
		return faultfs.None
	}))
	d.write(t, mem, o.Dir)
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := l.NewScrubber(1 << 40)
	sealed := len(round(t, s))
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
		syscall.EACCES, syscall.ENOENT, syscall.EINTR, syscall.EIO} {
		for _, op := range []faultfs.Op{faultfs.OpOpen, faultfs.OpSize, faultfs.OpRead} {
			at.Store(int64(op))
			fault.Store(int64(faultfs.Errno(errno)))
			n := 0
			for {
				res, err := s.Next(tContext)
				if err != nil {
					t.Fatal(err)
				}
				if res.File == "" {
					if want := sealed; errno != syscall.EIO && (n != want || res.Skipped != want) {
						t.Errorf("%v of %v: %d segments, %d skipped, want %d", errno, op, n,
							res.Skipped, want)
					}
					break
				}
				n++
				if damage := errno == syscall.EIO; damage != (res.Damage != nil) ||
					damage == (res.Unread != nil) {
					t.Errorf("%v of %v: %+v", errno, op, res)
				}
			}
			fault.Store(0)
			for _, res := range round(t, s) {
				if res.Damage != nil || res.Unread != nil {
					t.Errorf("after %v of %v: %+v", errno, op, res)
				}
			}
		}
	}
}

// What was merged since the writer last began a segment is read as well.
func TestScrubReadsMergedSegments(t *testing.T) {
	mem := memfs.New()
	l, m := create(t, testOptions(mem))
	defer l.Close()
	rng := seeded(t, 3)
	if err := fill(t, l, m, rng, func() bool { return len(l.cat.segments()) >= 6 }); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitReclaimed(tContext); err != nil {
		t.Fatal(err)
	}
	// Half of the records go.
	var dead []DeadRecord
	for i, r := range m.recs() {
		if i%2 == 0 {
			dead = append(dead, DeadRecord{Rev: r.rev})
		}
	}
	if err := l.Dead(dead); err != nil {
		t.Fatal(err)
	}
	l.Reclaim()
	if err := l.WaitReclaimed(tContext); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, s := range l.cat.segments() {
		if f := s.file(); f != nil {
			want[f.Path()] = true
		}
	}
	if l.ReclaimStats().Rewrites == 0 {
		t.Fatal("nothing was rewritten")
	}
	got := map[string]bool{}
	for _, res := range round(t, l.NewScrubber(1<<40)) {
		if res.Damage != nil || res.Unread != nil {
			t.Errorf("%+v", res)
		}
		got[res.File] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("read %v of %v", got, want)
	}
}
