package vfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"vigil/internal/vfs"
)

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a")
	if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	ro := vfs.ReadOnly(vfs.OS())
	f, err := ro.OpenWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 7)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "content" {
		t.Fatal(string(b), err)
	}
	m, ok := f.(vfs.Mapper)
	if !ok {
		t.Fatalf("%T is not a Mapper", f)
	}
	mapping, err := m.Map(7)
	if err != nil || string(mapping.Bytes()) != "content" || mapping.Close() != nil {
		t.Fatal(err)
	}
	_, created := ro.Create(name + "2")
	_, locked := ro.Lock(filepath.Join(dir, "LOCK"))
	_, written := f.WriteAt([]byte("x"), 0)
	for i, err := range []error{created, locked, written, f.Sync(), f.Truncate(0),
		f.Preallocate(1 << 20), ro.Remove(name),
		ro.Rename(name, name+"2"), ro.Link(name, name+"2"), ro.MkdirAll(filepath.Join(dir, "d")),
		ro.SyncDir(dir)} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("change %d: %v", i, err)
		}
	}
	names, err := ro.List(dir)
	st, serr := ro.Stat(name)
	if err != nil || serr != nil || len(names) != 1 || st.Size() != 7 {
		t.Error(names, err, serr)
	}
}
