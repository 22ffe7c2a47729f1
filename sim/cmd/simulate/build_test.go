package main

import (
	"os"
	"path/filepath"
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
