package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
)

// TestTwoClones releases the commit for every platform from two clones at different paths, the
// second without the cache of the first.
func TestTwoClones(t *testing.T) {
	inFull(t)
	need(t, "git")
	src, err := openSource(context.Background(), ".")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"first", "a second"}
	clones, out := map[string]string{}, map[string]string{}
	// all before the first build, which takes minutes: there may be a new commit then
	for _, name := range names {
		clones[name] = filepath.Join(t.TempDir(), name)
		runProgram(t, "git", "clone", "-q", "--no-hardlinks", src.root, clones[name])
	}
	for _, name := range names {
		clone := clones[name]
		if name == "a second" {
			t.Setenv("GOCACHE", t.TempDir())
			t.Setenv("GOFLAGS", "-tags=other")
		}
		t.Chdir(clone)
		var stdout, stderr bytes.Buffer
		if code := run(context.Background(), []string{"-version", "1.2.3"}, &stdout,
			&stderr); code != 0 {
			t.Fatalf("exit code %d\n%s%s", code, stdout.String(), stderr.String())
		}
		t.Logf("%s", stdout.String())
		out[name] = filepath.Join(clone, "dist", "1.2.3")
		if entries, err := os.ReadDir(out[name]); err != nil || len(entries) != 22 {
			t.Errorf("%d files in the release, want 22: %v", len(entries), err)
		}
	}
	compareReleases(t, out["first"], out["a second"])
}
