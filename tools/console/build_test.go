package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const assets = "../../internal/edge/console/assets"

// maxCompressed limits what a browser loads.
const maxCompressed = 250 << 10

func TestAssetsAreBuiltFromTheSources(t *testing.T) {
	want, err := build(filepath.Join("..", sources))
	if err != nil {
		t.Fatal(err)
	}
	again, err := build(filepath.Join("..", sources))
	if err != nil {
		t.Fatal(err)
	}
	have, err := built(assets)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for name, content := range want {
		if !bytes.Equal(content, again[name]) {
			t.Errorf("%s: two builds differ", name)
		}
		if !bytes.Equal(content, have[name]) {
			t.Errorf("%s is not built from the sources: run make console", name)
		}
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		w.Write(content)
		w.Close()
		t.Logf("%-24s %7d bytes, %6d compressed", name, len(content), z.Len())
		total += z.Len()
	}
	for name := range have {
		if want[name] == nil {
			t.Errorf("%s is left from an older build: run make console", name)
		}
	}
	if total > maxCompressed {
		t.Errorf("%d bytes compressed, at most %d", total, maxCompressed)
	}
}

func TestChangedThirdPartyIsRejected(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"src", "third_party"} {
		if err := os.CopyFS(filepath.Join(root, dir),
			os.DirFS(filepath.Join("..", sources, dir))); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkLock(root); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(root, "third_party", "preact", "dist", "preact.mjs")
	b, _ := os.ReadFile(name)
	b[0]++
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := build(root); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Fatalf("a changed file is built: %v", err)
	}
}
