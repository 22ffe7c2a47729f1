package vfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

// TestPinned: operations on names do nothing while the path of the directory leads elsewhere, and
// go on when it is back.
func TestPinned(t *testing.T) {
	root := t.TempDir()
	dir, away := filepath.Join(root, "parent", "dir"), filepath.Join(root, "parent.away")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := vfs.Pin(vfs.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	name := filepath.Join(dir, "file")
	f, err := p.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	operations := map[string]func() error{
		"create":     func() error { _, err := p.Create(name + "2"); return err },
		"open":       func() error { _, err := p.Open(name); return err },
		"open write": func() error { _, err := p.OpenWrite(name); return err },
		"remove":     func() error { return p.Remove(name) },
		"rename":     func() error { return p.Rename(name, name+"2") },
		"link":       func() error { return p.Link(name, name+"2") },
		"list":       func() error { _, err := p.List(dir); return err },
		"sync":       func() error { return p.SyncDir(dir) },
	}
	differs := func(what string, path, now string) {
		t.Helper()
		for op, run := range operations {
			err := run()
			if e, ok := errors.AsType[*vfs.AwayError](err); !ok || !errors.Is(err, kv.ErrAway) ||
				!kv.Shortage(vfs.MarkShortage(err)) || vfs.CauseOf(err) != vfs.Away {
				t.Errorf("%s: %s: %v", what, op, err)
			} else if e.Path != path || e.Now != now {
				t.Errorf("%s: %s is at %q now, want %s at %q", what, e.Path, e.Now, path, now)
			}
		}
		if err := vfs.CheckFile(vfs.OS(), name, f); !errors.Is(err, kv.ErrAway) {
			t.Errorf("%s: the file: %v", what, err)
		}
	}

	if err := os.Rename(filepath.Dir(dir), away); err != nil {
		t.Fatal(err)
	}
	differs("the parent moved", filepath.Dir(dir), away)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	differs("another directory", filepath.Dir(dir), away)
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("in the other directory: %v, %v", names, err)
	}
	if err := errors.Join(os.RemoveAll(filepath.Dir(dir)),
		os.Symlink(away, filepath.Dir(dir))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Check(), vfs.CheckFile(vfs.OS(), name, f), p.SyncDir(dir)); err != nil {
		t.Errorf("a link to the same directory: %v", err)
	}
	if err := os.RemoveAll(away); err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); !errors.Is(err, kv.ErrAway) || !strings.Contains(err.Error(), "deleted") {
		t.Errorf("a directory that was deleted: %v", err)
	}
}

// A path of which it is not known where it leads is no difference, and file systems without
// identities have none.
func TestPlaceUnsure(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	long := filepath.Join(dir, strings.Repeat("x", 5000))
	if err := vfs.CheckFile(vfs.OS(), long, f); !errors.Is(err, vfs.ErrUnsure) ||
		errors.Is(err, kv.ErrAway) {
		t.Errorf("a path that cannot be looked up: %v", err)
	}
	mem := memfs.New()
	if err := mem.MkdirAll("dir"); err != nil {
		t.Fatal(err)
	}
	p, err := vfs.Pin(mem, "dir")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Check(), vfs.CheckPlace(mem, "none", nil)); err != nil {
		t.Error(err)
	}
	p.Release()
	if _, err := vfs.Pin(vfs.OS(), filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
}
