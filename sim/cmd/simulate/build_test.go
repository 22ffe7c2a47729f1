package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRemoveOld(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	kept, old := filepath.Join(dir, "kept"), filepath.Join(dir, "runtime", "old")
	if err := os.Mkdir(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{kept: time.Hour, old: 25 * time.Hour} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	removeOld(dir, now.Add(-cacheAge))
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a new file: %v", err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("an old file: %v", err)
	}
}

// TestHostFiles: the version of the code covers what decides what happens in a run, besides the
// program of the processes.
func TestHostFiles(t *testing.T) {
	files, err := hostFiles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"sim/world/world.go", "sim/scenario/profiles.go",
		"sim/check/watch.go", "internal/vfs/memfs/memfs.go", "sim/cmd/simulate/build.go"} {
		if !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, end) }) {
			t.Errorf("%s is missing in %q", end, files)
		}
	}
	if slices.ContainsFunc(files,
		func(f string) bool {
			return strings.HasSuffix(f, "_test.go") ||
				strings.Contains(f, "wazero")
		}) {
		t.Errorf("tests or other modules are in %q", files)
	}
}
