package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"vigil/sim/world"
)

// cacheAge is the age at which a compiled program, of some 160 MB, is removed.
const cacheAge = 24 * time.Hour

// cacheDir returns the directory of compiled programs. It removes old ones.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "vigil-simulate")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	removeOld(dir, time.Now().Add(-cacheAge))
	return dir, nil
}

// removeOld removes the files in dir and below it that were written before a time. Another process may do the same.
func removeOld(dir string, before time.Time) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil && info.ModTime().Before(before) {
			_ = os.Remove(path)
		}
		return nil
	})
}

// loadGuest builds the program of the processes, or uses the one in a file, and compiles it.
func loadGuest(ctx context.Context, file, overlay string) (*world.Guest, error) {
	cache, err := cacheDir()
	if err != nil {
		cache = "" // compiled again each time
	}
	if file == "" {
		dir, err := os.MkdirTemp("", "vigil-simulate")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		file = filepath.Join(dir, "guest.wasm")
		// Without paths and versions of the working tree the same code has the same version.
		// A library is initialized once, and not at each start of a process; see world.image. It calls functions of the runtime.
		args := []string{"build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w -checklinkname=0", "-o", file}
		if overlay != "" {
			args = append(args, "-overlay", overlay)
		}
		build := exec.CommandContext(ctx, "go", append(args, "vigil/sim/guest")...)
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("build the program of the processes, in the module vigil/sim: %w", err)
		}
	}
	return world.Load(ctx, file, cache)
}
