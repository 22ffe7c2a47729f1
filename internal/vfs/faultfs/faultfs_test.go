package faultfs_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"

	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
	"vigil/internal/vfs/vfstest"
)

// Without faults it is a file system like any other.
func TestContract(t *testing.T) {
	for name, free := range map[string]int64{"unlimited": -1, "limited": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			vfstest.Run(t, func(*testing.T) (vfs.FS, string) {
				f := faultfs.New(memfs.New(), nil)
				if free >= 0 {
					f.SetFree(free)
				}
				return f, "/"
			})
		})
	}
}

// run does one of everything that changes the disk and returns the first error.
func run(f vfs.FS) error {
	var h vfs.File
	for _, step := range []func() error{
		func() error { return f.MkdirAll("/d") },
		func() (err error) { h, err = f.Create("/d/a"); return err },
		func() error { return h.Preallocate(100) },
		func() error { _, err := h.WriteAt([]byte("0123456789"), 0); return err },
		func() error { return h.Sync() },
		func() error { return h.Truncate(50) },
		func() error { return f.Link("/d/a", "/d/b") },
		func() error { return f.Rename("/d/b", "/d/c") },
		func() error { return f.SyncDir("/d") },
		func() error { return f.Remove("/d/a") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return h.Close()
}

//vigil:norace
func TestFaults(t *testing.T) {
	quiet := faultfs.New(memfs.New(), nil)
	if err := run(quiet); err != nil {
		t.Fatal(err)
	}
	total := quiet.Count()
	if total != 10 {
		t.Fatalf("%d operations, want 10", total)
	}
	for n := int64(1); n <= total; n++ {
		for _, fault := range []faultfs.Fault{faultfs.Fail, faultfs.FailPersisted,
			faultfs.ShortWrite, faultfs.NoSpace, faultfs.FailLost, faultfs.Errno(syscall.EMFILE)} {
			f := faultfs.New(memfs.New(), faultfs.Nth(n, fault, nil))
			want := faultfs.ErrInjected
			switch fault {
			case faultfs.NoSpace:
				want = syscall.ENOSPC
			case faultfs.Errno(syscall.EMFILE):
				want = syscall.EMFILE
			}
			if err := run(f); !errors.Is(err, want) {
				t.Errorf("operation %d with fault %v: error %v", n, fault, err)
			}
			if f.Count() != n {
				t.Errorf("operation %d with fault %v: %d operations", n, fault, f.Count())
			}
		}
	}
}

func TestWhatAFaultLeaves(t *testing.T) {
	for fault, want := range map[faultfs.Fault]int64{faultfs.Fail: 0, faultfs.FailPersisted: 10,
		faultfs.ShortWrite: 5} {
		mem := memfs.New()
		f := faultfs.New(mem, func(op faultfs.Op, _ string) faultfs.Fault {
			if op == faultfs.OpWrite {
				return fault
			}
			return faultfs.None
		})
		h, err := f.Create("a")
		if err != nil {
			t.Fatal(err)
		}
		n, err := h.WriteAt(make([]byte, 10), 0)
		if !errors.Is(err, faultfs.ErrInjected) || int64(n) != want {
			t.Errorf("%v: wrote %d, %v", fault, n, err)
		}
		st, err := mem.Stat("a")
		if err != nil || st.Size() != want {
			t.Errorf("%v: size %d, %v; want %d", fault, st.Size(), err, want)
		}
	}
}

func TestSpace(t *testing.T) {
	f := faultfs.New(memfs.New(), nil)
	f.SetFree(100)
	h, err := f.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	check := func(err, want error, free int64) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
		if n, err := f.Free("/"); n != free || err != nil {
			t.Fatalf("%d bytes free (%v), want %d", n, err, free)
		}
	}
	check(h.Preallocate(80), nil, 20)
	_, err = h.WriteAt(make([]byte, 80), 0)
	check(err, nil, 20)
	_, err = h.WriteAt(make([]byte, 30), 75)
	check(err, syscall.ENOSPC, 20)
	_, err = h.WriteAt(make([]byte, 25), 75)
	check(err, nil, 0)
	check(h.Truncate(101), syscall.ENOSPC, 0)
	check(h.Truncate(60), nil, 40)
	check(f.Link("a", "b"), nil, 40)
	check(f.Rename("b", "c"), nil, 40)
	check(f.Remove("a"), nil, 40)
	check(f.Remove("c"), nil, 100)
	f.SetFree(0)
	_, err = f.Create("d")
	check(err, nil, 0)
}

// After a lost sync the content is there until a crash, and a later sync brings back only what was
// written again.
func TestLostSync(t *testing.T) {
	mem := memfs.New()
	f := faultfs.New(mem,
		faultfs.Nth(1, faultfs.FailLost,
			func(op faultfs.Op, _ string) bool { return op == faultfs.OpSync }))
	h, err := f.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	write := func(off int64) {
		t.Helper()
		if _, err := h.WriteAt([]byte("content"), off); err != nil {
			t.Fatal(err)
		}
	}
	write(0)
	write(8192)
	if err := h.Sync(); !errors.Is(err, faultfs.ErrInjected) {
		t.Fatal(err)
	}
	write(8192)
	if err := errors.Join(h.Sync(), f.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	read := func(f vfs.FS) string {
		t.Helper()
		h, err := f.Open("a")
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 8192+7)
		if _, err := h.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		return string(b[:7]) + string(b[8192:])
	}
	if s := read(f); s != "contentcontent" {
		t.Fatalf("before a crash %q", s)
	}
	if s := read(mem.Crash(rand.New(rand.NewPCG(1,
		1)))); s != "\x00\x00\x00\x00\x00\x00\x00content" {
		t.Fatalf("after a crash %q", s)
	}
}

// A short read looks like the end of the file, and does nothing to other operations.
func TestShortRead(t *testing.T) {
	f := faultfs.New(memfs.New(),
		func(faultfs.Op, string) faultfs.Fault { return faultfs.ShortRead })
	h, err := f.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteAt([]byte("0123456789"), 0); err != nil || h.Sync() != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	if n, err := h.ReadAt(b, 0); n != 5 || err != io.EOF || string(b[:5]) != "01234" {
		t.Errorf("read %q, %v", b[:n], err)
	}
}
