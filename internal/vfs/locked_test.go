package vfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"vigil/internal/vfs"
)

func TestLocked(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	want := func(held bool) {
		t.Helper()
		if got, err := vfs.Locked(name); err != nil || got != held {
			t.Fatalf("%v, %v; want %v", got, err, held)
		}
	}
	want(false)
	if _, err := os.Stat(name); !os.IsNotExist(err) {
		t.Fatal("asking made the file")
	}
	l, err := vfs.OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	want(true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	want(false)
	if l, err = vfs.OS().Lock(name); err != nil {
		t.Fatalf("the check left a lock: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
