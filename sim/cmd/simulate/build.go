package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"vigil/sim/planted"
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

// removeOld removes the files in dir and below it that were written before a time. Another process
// may do the same.
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

// trimmed leaves out what no simulation uses: the pages of golang.org/x/net/trace. They have
// templates, for which the linker keeps all exported methods of all packages: a quarter of the
// functions, which are compiled for minutes.
var trimmed = planted.Mistake{Name: "trimmed", Edits: []planted.Edit{
	{File: "internal/edge/httpd/debug.go", Old: "\n\t\"golang.org/x/net/trace\"\n", New: ""},
	{File: "internal/edge/httpd/debug.go",
		Old: "\tmux.HandleFunc(\"/debug/requests\",\n\t\tfunc(w http.ResponseWriter, r *http.Request) { trace.Render(w, r, true) })\n", New: ""},
	{File: "internal/edge/httpd/debug.go",
		Old: "\tmux.HandleFunc(\"/debug/events\",\n\t\tfunc(w http.ResponseWriter, r *http.Request) { trace.RenderEvents(w, r, true) })\n", New: ""},
	{File: "internal/edge/rpc/gate/calllog.go", Old: "\t\"golang.org/x/net/trace\"\n", New: ""},
	{File: "internal/edge/rpc/gate/calllog.go", Old: "\ttr := trace.New(",
		New: "\ttr := newRecord("},
	{File: "internal/edge/rpc/gate/calllog.go", Old: "// traced begins",
		New: "type record struct{}\n\nfunc newRecord(string, string) record { return record{} }\n\nfunc (record) LazyPrintf(string, ...any) {}\nfunc (record) SetError() {}\nfunc (record) Finish() {}\n\n// traced begins"},
}}

// loadGuest builds the program of the processes, with some files changed, or uses the one in a
// file, and compiles it.
func loadGuest(ctx context.Context, file string, changed map[string]string) (*world.Guest, error) {
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
		// Without paths and versions of the working tree the same code has the same version. A
		// library is initialized once, and not at each start of a process; see world.image. It
		// calls functions of the runtime.
		overlay, err := writeOverlay(ctx, dir, changed)
		if err != nil {
			return nil, err
		}
		args := []string{"build", "-tags=grpcnotrace", "-overlay=" + overlay, "-trimpath",
			"-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w -checklinkname=0", "-o", file}
		build := exec.CommandContext(ctx, "go", append(args, "vigil/sim/guest")...)
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("build the program of the processes, in the module vigil/sim: %w", err)
		}
	}
	g, err := world.Load(ctx, file, cache)
	if err != nil {
		return nil, err
	}
	return g, addHost(ctx, g)
}

// addHost makes the version of the code depend on what runs the program too: plans, faults, disks,
// the network, and the checks.
func addHost(ctx context.Context, g *world.Guest) error {
	files, err := hostFiles(ctx)
	if err != nil {
		return err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, g.Version)
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n", filepath.Base(file), len(code))
		sum.Write(code)
	}
	g.Version = hex.EncodeToString(sum.Sum(nil)[:4])
	return nil
}

// hostFiles returns the files of the modules vigil and vigil/sim of which this program is made.
func hostFiles(ctx context.Context) (files []string, err error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-f",
		"{{with .Module}}{{.Path}}{{end}}\t{{.Dir}}\t{{join .GoFiles \"\t\"}}",
		"vigil/sim/cmd/simulate")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the code of the simulation, from the module vigil/sim: %w",
			err)
	}
	for line := range strings.Lines(string(out)) {
		p := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if p[0] != "vigil" && p[0] != "vigil/sim" {
			continue
		}
		for _, name := range p[2:] {
			files = append(files, filepath.Join(p[1], name))
		}
	}
	return files, nil
}

// writeOverlay writes the overlay of the build to a directory, and returns its file.
func writeOverlay(ctx context.Context, dir string, changed map[string]string) (string, error) {
	root, err := sources(ctx)
	if err != nil {
		return "", err
	}
	files, err := trimmed.Apply(root)
	if err != nil {
		return "", err
	}
	maps.Copy(files, changed)
	return planted.Overlay(root, dir, files)
}

// sources returns the folder of the module vigil. The working directory is anywhere in the module
// vigil/sim.
func sources(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "vigil").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources, from the module vigil/sim: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
