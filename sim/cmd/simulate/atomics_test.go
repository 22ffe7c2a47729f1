package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vigil/sim/planted"
)

// TestInlineAtomics: the changed files of the standard library fit its version, no operation is left out, and they compile. The compiler
// reports a forbidden write barrier when it compiles the runtime.
func TestInlineAtomics(t *testing.T) {
	files, err := inlineAtomics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Fatalf("%d files are changed", len(files))
	}
	for name, code := range files {
		if n := strings.Count(code, "//go:noinline"); n > 1 {
			t.Errorf("%s: %d operations are not inlined", name, n)
		}
		for _, f := range declared.FindAllStringSubmatch(code, -1) {
			if !writesPointer(f[2]) {
				t.Errorf("%s: %s has no body", name, f[2])
			}
		}
	}
	overlay, err := planted.Overlay(".", t.TempDir(), files)
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "runtime", "sync/atomic")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestAtomicBodies: the bodies do what the operations of package sync/atomic do.
func TestAtomicBodies(t *testing.T) {
	dir := t.TempDir()
	var code strings.Builder
	code.WriteString(`package main

import (
	"fmt"
	"os"
	real "sync/atomic"
)

func main() {
	for _, addr := range []int64{-9, 0, 5} {
		for _, arg := range []int64{-9, 0, 3, 5} {
			for _, old := range []int64{-9, 5} {
				compare(addr, arg, old)
			}
		}
	}
}

func compare(v, arg, old int64) {
	equal := func(name string, a, b int64, x, y any) {
		if a != b || x != y {
			fmt.Println(name, v, arg, old, ":", a, b, x, y)
			os.Exit(1)
		}
	}
	a, b := v, v
	var x, y any
	x, y = AddInt64(&a, arg), real.AddInt64(&b, arg)
	equal("Add", a, b, x, y)
	x, y = AndInt64(&a, arg), real.AndInt64(&b, arg)
	equal("And", a, b, x, y)
	x, y = OrInt64(&a, arg), real.OrInt64(&b, arg)
	equal("Or", a, b, x, y)
	x, y = SwapInt64(&a, v), real.SwapInt64(&b, v)
	equal("Swap", a, b, x, y)
	x, y = CompareAndSwapInt64(&a, old, arg), real.CompareAndSwapInt64(&b, old, arg)
	equal("CompareAndSwap", a, b, x, y)
	x, y = LoadInt64(&a), real.LoadInt64(&b)
	equal("Load", a, b, x, y)
	StoreInt64(&a, arg)
	real.StoreInt64(&b, arg)
	equal("Store", a, b, nil, nil)
}

`)
	text, err := inlined(`func AddInt64(addr *int64, delta int64) (new int64)
func AndInt64(addr *int64, mask int64) (old int64)
func OrInt64(addr *int64, mask int64) (old int64)
func SwapInt64(addr *int64, new int64) (old int64)
func CompareAndSwapInt64(addr *int64, old, new int64) (swapped bool)
func LoadInt64(addr *int64) (val int64)
func StoreInt64(addr *int64, val int64)`)
	if err != nil {
		t.Fatal(err)
	}
	code.WriteString(text)
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(code.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
