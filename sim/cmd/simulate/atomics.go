package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// The files of Go's standard library with atomic operations for wasm, below its sources.
const (
	runtimeAtomics  = "internal/runtime/atomic/atomic_wasm.go"
	assemblyAtomics = "sync/atomic/asm.s"
)

var declaredAtomics = []string{"sync/atomic/doc.go", "sync/atomic/doc_64.go"}

var (
	// notInlined marks an operation of the runtime that must stay a call. Casp1 does: inlined, its write of a pointer would have a
	// write barrier where the runtime forbids one.
	notInlined = regexp.MustCompile(`//go:noinline\n(func (\w+))`)
	// declared is an atomic operation without a body, with its name and results.
	declared = regexp.MustCompile(`(?m)^(?://go:noescape\n)?(func ([A-Z]\w*)\(addr \*.*\)(?: \(.*\))?)$`)
)

// bodies are what atomic operations do in a program with one thread, in which a goroutine runs until it calls the scheduler, by the
// beginning of their names. A name that begins with another one is before it.
var bodies = []struct{ name, body string }{
	{"CompareAndSwap", "if *addr != old {\n\t\treturn false\n\t}\n\t*addr = new\n\treturn true"},
	{"Swap", "old = *addr\n\t*addr = new\n\treturn old"},
	{"Add", "*addr += delta\n\treturn *addr"},
	{"And", "old = *addr\n\t*addr &= mask\n\treturn old"},
	{"Or", "old = *addr\n\t*addr |= mask\n\treturn old"},
	{"Load", "return *addr"},
	{"Store", "*addr = val"},
}

// writesPointer reports whether the runtime itself has the operation of sync/atomic, because it writes a pointer.
func writesPointer(name string) bool {
	return strings.HasSuffix(name, "Pointer") && name != "LoadPointer"
}

// inlineAtomics returns files of Go's standard library that let the compiler inline atomic operations. For wasm they are calls of
// functions, and of two for each operation of package sync/atomic, which cost more than the operations.
func inlineAtomics(ctx context.Context) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go's standard library: %w", err)
	}
	files := map[string]string{}
	for _, name := range append([]string{runtimeAtomics, assemblyAtomics}, declaredAtomics...) {
		name = filepath.Join(strings.TrimSpace(string(out)), "src", filepath.FromSlash(name))
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		code, err := inlined(string(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = code
	}
	return files, nil
}

// inlined changes the text of one of the files.
func inlined(code string) (string, error) {
	before := code
	code = notInlined.ReplaceAllStringFunc(code, func(f string) string {
		if strings.HasSuffix(f, " Casp1") {
			return f
		}
		return strings.TrimPrefix(f, "//go:noinline\n")
	})
	code = declared.ReplaceAllStringFunc(code, func(f string) string {
		parts := declared.FindStringSubmatch(f)
		if writesPointer(parts[2]) {
			return f
		}
		for _, b := range bodies {
			if strings.HasPrefix(parts[2], b.name) {
				return parts[1] + " {\n\t" + b.body + "\n}"
			}
		}
		return f
	})
	// The assembly has only jumps from the declared operations to those of the runtime.
	code, _, _ = strings.Cut(code, "\nTEXT ")
	if code == before {
		return "", fmt.Errorf("no atomic operation was found: adapt the patterns to the version of Go")
	}
	return code + "\n", nil
}
