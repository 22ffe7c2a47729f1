// Package vfstest is the contract of vfs.FS as a test that runs over every implementation.
package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"vigil/internal/vfs"
)

// Run checks that the file systems open returns keep the contract. Each call of open returns one
// with an existing, empty directory in it.
func Run(t *testing.T, open func(t *testing.T) (f vfs.FS, dir string)) {
	for name, test := range map[string]func(*env){
		"files":        (*env).files,
		"reading":      (*env).reading,
		"sizes":        (*env).sizes,
		"names":        (*env).names,
		"open renamed": (*env).openRenamed,
		"directories":  (*env).directories,
		"locks":        (*env).locks,
		"mappings":     (*env).mappings,
		"closed":       (*env).closed,
		"concurrent":   (*env).concurrent,
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := open(t)
			test(&env{t, f, dir})
		})
	}
}

type env struct {
	*testing.T
	fs  vfs.FS
	dir string
}

func (e *env) path(name string) string { return filepath.Join(e.dir, name) }

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("got error %v, want %v", err, want)
	}
}

func (e *env) create(name, content string) {
	e.Helper()
	f, err := e.fs.Create(e.path(name))
	e.ok(err)
	if content != "" {
		n, err := f.WriteAt([]byte(content), 0)
		e.ok(err)
		if n != len(content) {
			e.Fatalf("wrote %d of %d bytes", n, len(content))
		}
	}
	e.ok(f.Sync())
	e.ok(f.Close())
}

func (e *env) content(name string) string {
	e.Helper()
	f, err := e.fs.Open(e.path(name))
	e.ok(err)
	s := e.read(f)
	e.ok(f.Close())
	return s
}

func (e *env) read(f vfs.File) string {
	e.Helper()
	size, err := f.Size()
	e.ok(err)
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		e.Fatal(err)
	}
	if int64(n) != size {
		e.Fatalf("read %d of %d bytes", n, size)
	}
	return string(b)
}

func (e *env) want(name, content string) {
	e.Helper()
	if s := e.content(name); s != content {
		e.Fatalf("%s holds %q, want %q", name, s, content)
	}
}

func (e *env) list(want ...string) {
	e.Helper()
	names, err := e.fs.List(e.dir)
	e.ok(err)
	if !slices.Equal(names, want) {
		e.Fatalf("names %q, want %q", names, want)
	}
}

func (e *env) files() {
	_, err := e.fs.Open(e.path("a"))
	e.is(err, fs.ErrNotExist)
	_, err = e.fs.OpenWrite(e.path("a"))
	e.is(err, fs.ErrNotExist)
	_, err = e.fs.Create(e.path("none/a"))
	e.is(err, fs.ErrNotExist)
	e.create("a", "hello")
	_, err = e.fs.Create(e.path("a"))
	e.is(err, fs.ErrExist)
	e.want("a", "hello")

	f, err := e.fs.OpenWrite(e.path("a"))
	e.ok(err)
	if f.Name() != e.path("a") {
		e.Fatalf("name %q", f.Name())
	}
	_, err = f.WriteAt([]byte("p me"), 3)
	e.ok(err)
	e.ok(f.Close())
	e.want("a", "help me")

	f, err = e.fs.Open(e.path("a"))
	e.ok(err)
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		e.Fatal("wrote to a file that is open for reading")
	}
	if err := f.Truncate(0); err == nil {
		e.Fatal("truncated a file that is open for reading")
	}
	e.ok(f.Close())
	e.want("a", "help me")
}

func (e *env) reading() {
	e.create("a", "0123456789")
	f, err := e.fs.Open(e.path("a"))
	e.ok(err)
	defer f.Close()
	b := make([]byte, 4)
	for _, c := range []struct {
		off  int64
		n    int
		eof  bool
		want string
	}{{0, 4, false, "0123"}, {6, 4, false, "6789"}, {8, 2, true, "89"}, {10, 0, true, ""},
		{99, 0, true, ""}} {
		n, err := f.ReadAt(b, c.off)
		if n != c.n || (err == io.EOF) != c.eof || string(b[:n]) != c.want {
			e.Fatalf("ReadAt(4, %d) = %q, %v", c.off, b[:n], err)
		}
	}
	if _, err := f.ReadAt(b, -1); err == nil {
		e.Fatal("read at a negative offset")
	}
}

func (e *env) sizes() {
	f, err := e.fs.Create(e.path("a"))
	e.ok(err)
	defer f.Close()
	size := func(want int64) {
		e.Helper()
		n, err := f.Size()
		e.ok(err)
		st, err := e.fs.Stat(e.path("a"))
		e.ok(err)
		if n != want || st.Size() != want {
			e.Fatalf("size %d, by Stat %d, want %d", n, st.Size(), want)
		}
	}
	size(0)
	_, err = f.WriteAt([]byte("end"), 10000)
	e.ok(err)
	size(10003)
	if s := e.read(f); s != string(make([]byte, 10000))+"end" {
		e.Fatal("a hole does not read as zeros")
	}
	e.ok(f.Preallocate(100))
	size(10003)
	e.ok(f.Preallocate(20000))
	size(20000)
	e.ok(f.Truncate(10001))
	size(10001)
	e.ok(f.Truncate(10004))
	if s := e.read(f); s != string(make([]byte, 10000))+"e\x00\x00\x00" {
		e.Fatalf("the bytes that were cut off came back: %q", s[9999:])
	}
	e.ok(f.Truncate(0))
	e.ok(f.Truncate(3))
	if s := e.read(f); s != "\x00\x00\x00" {
		e.Fatalf("the bytes that were cut off came back: %q", s)
	}
	if err := f.Truncate(-1); err == nil {
		e.Fatal("truncated to a negative size")
	}
	e.ok(f.Sync())
}

func (e *env) names() {
	e.list()
	e.create("b", "b")
	e.create("a", "a")
	e.list("a", "b")
	e.is(e.fs.Rename(e.path("c"), e.path("d")), fs.ErrNotExist)
	e.is(e.fs.Remove(e.path("c")), fs.ErrNotExist)
	e.ok(e.fs.Rename(e.path("a"), e.path("a")))
	e.ok(e.fs.Rename(e.path("a"), e.path("c")))
	e.list("b", "c")
	e.ok(e.fs.Rename(e.path("c"), e.path("b")))
	e.list("b")
	e.want("b", "a")

	e.is(e.fs.Link(e.path("c"), e.path("d")), fs.ErrNotExist)
	e.is(e.fs.Link(e.path("b"), e.path("b")), fs.ErrExist)
	e.ok(e.fs.Link(e.path("b"), e.path("d")))
	f, err := e.fs.OpenWrite(e.path("d"))
	e.ok(err)
	_, err = f.WriteAt([]byte("both"), 0)
	e.ok(err)
	e.ok(f.Close())
	e.want("b", "both")
	e.ok(e.fs.Remove(e.path("b")))
	e.want("d", "both")
	e.ok(e.fs.SyncDir(e.dir))
	_, err = e.fs.Stat(e.path("b"))
	e.is(err, fs.ErrNotExist)
	e.is(e.fs.SyncDir(e.path("none")), fs.ErrNotExist)
	_, err = e.fs.List(e.path("none"))
	e.is(err, fs.ErrNotExist)
}

func (e *env) openRenamed() {
	e.create("a", "old")
	f, err := e.fs.OpenWrite(e.path("a"))
	e.ok(err)
	defer f.Close()
	e.create("b", "new")
	e.ok(e.fs.Rename(e.path("b"), e.path("a")))
	_, err = f.WriteAt([]byte("OLD"), 0)
	e.ok(err)
	if s := e.read(f); s != "OLD" {
		e.Fatalf("the open file holds %q", s)
	}
	e.want("a", "new")
	e.ok(e.fs.Remove(e.path("a")))
	if s := e.read(f); s != "OLD" {
		e.Fatalf("the open file holds %q", s)
	}
	e.ok(f.Sync())
}

func (e *env) directories() {
	e.ok(e.fs.MkdirAll(e.path("x/y/z")))
	e.ok(e.fs.MkdirAll(e.path("x/y")))
	e.create("x/y/f", "f")
	if err := e.fs.MkdirAll(e.path("x/y/f")); err == nil {
		e.Fatal("replaced a file by a directory")
	}
	if err := e.fs.MkdirAll(e.path("x/y/f/g")); err == nil {
		e.Fatal("made a directory in a file")
	}
	st, err := e.fs.Stat(e.path("x/y"))
	e.ok(err)
	if !st.IsDir() || st.Name() != "y" {
		e.Fatalf("%q, a directory: %v", st.Name(), st.IsDir())
	}
	if err := e.fs.Remove(e.path("x/y")); err == nil {
		e.Fatal("removed a directory with something in it")
	}
	if err := e.fs.Rename(e.path("x"), e.path("x/y/z/x")); err == nil {
		e.Fatal("moved a directory into itself")
	}
	e.ok(e.fs.Remove(e.path("x/y/z")))
	e.ok(e.fs.Rename(e.path("x"), e.path("w")))
	e.list("w")
	e.want("w/y/f", "f")
	e.ok(e.fs.MkdirAll(e.path("v")))
	e.is(e.fs.Rename(e.path("w/y"), e.path("v")), fs.ErrExist)
	e.ok(e.fs.Rename(e.path("w/y"), e.path("v/y")))
	e.want("v/y/f", "f")
	e.create("file", "")
	if err := e.fs.Rename(e.path("file"), e.path("w")); err == nil {
		e.Fatal("a file took the place of a directory")
	}
	if err := e.fs.Rename(e.path("w"), e.path("file")); err == nil {
		e.Fatal("a directory took the place of a file")
	}
	if _, err := e.fs.List(e.path("file")); err == nil {
		e.Fatal("listed a file")
	}
}

func (e *env) locks() {
	l, err := e.fs.Lock(e.path("LOCK"))
	e.ok(err)
	_, err = e.fs.Lock(e.path("LOCK"))
	e.is(err, vfs.ErrLocked)
	e.ok(l.Close())
	l, err = e.fs.Lock(e.path("LOCK"))
	e.ok(err)
	e.ok(l.Close())
	e.list("LOCK")
	_, err = e.fs.Lock(e.path("none/LOCK"))
	e.is(err, fs.ErrNotExist)
	free, err := e.fs.Free(e.dir)
	e.ok(err)
	if free <= 0 {
		e.Fatalf("%d bytes free", free)
	}
}

func (e *env) mappings() {
	e.create("a", "mapped content")
	f, err := e.fs.Open(e.path("a"))
	e.ok(err)
	m, ok := f.(vfs.Mapper)
	if !ok {
		e.Fatalf("%T is not a vfs.Mapper", f)
	}
	if _, err := m.Map(15); err == nil {
		e.Fatal("mapped more than there is")
	}
	none, err := m.Map(0)
	e.ok(err)
	if len(none.Bytes()) != 0 {
		e.Fatal("an empty mapping is not empty")
	}
	e.ok(none.Close())
	b, err := m.Map(6)
	e.ok(err)
	e.ok(f.Close())
	e.ok(e.fs.Remove(e.path("a")))
	if string(b.Bytes()) != "mapped" {
		e.Fatalf("mapped %q", b.Bytes())
	}
	if runtime.GOOS == "linux" && !b.Resident(0, 6) {
		e.Fatal("the bytes that were read are not in memory")
	}
	for _, bad := range [][2]int64{{-1, 2}, {0, 7}, {7, 1}, {3, 0}, {1, math.MaxInt64}} {
		if b.Resident(bad[0], bad[1]) {
			e.Fatalf("%d bytes at %d of 6 are in memory", bad[1], bad[0])
		}
	}
	e.ok(b.Close())
}

func (e *env) closed() {
	f, err := e.fs.Create(e.path("a"))
	e.ok(err)
	e.ok(f.Close())
	_, err = f.ReadAt(make([]byte, 1), 0)
	e.is(err, fs.ErrClosed)
	_, err = f.WriteAt(make([]byte, 1), 0)
	e.is(err, fs.ErrClosed)
	e.is(f.Sync(), fs.ErrClosed)
	e.is(f.Preallocate(1), fs.ErrClosed)
	e.is(f.Truncate(1), fs.ErrClosed)
	_, err = f.Size()
	e.is(err, fs.ErrClosed)
	e.is(f.Close(), fs.ErrClosed)
}

func (e *env) concurrent() {
	f, err := e.fs.Create(e.path("a"))
	e.ok(err)
	defer f.Close()
	const part, parts = 1000, 8
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() {
			want := bytes.Repeat([]byte{byte('a' + i)}, part)
			for range 20 {
				if _, err := f.WriteAt(want, int64(i*part)); err != nil {
					e.Error(err)
				}
				got := make([]byte, part)
				if _, err := f.ReadAt(got, int64(i*part)); err != nil && err != io.EOF ||
					!bytes.Equal(got, want) {
					e.Errorf("part %d reads %q, %v", i, got[:1], err)
				}
			}
			if err := f.Sync(); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
}
