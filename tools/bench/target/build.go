// Package target builds the systems under test and runs them: each start is a new process on
// separate loopback ports.
//
// Invariants:
//  1. A server ends with this process: it is started with a parent-death signal, and Stop and Kill
//     end it by its process id and wait for it.
//  2. Every server runs with the same environment: the environment of this process without the
//     variables that configure etcd, Vigil or the Go runtime.
package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build is a server binary.
type Build struct {
	// Name is how tables call it.
	Name string
	// Kind is "vigil" or "etcd".
	Kind string
	Path string
	// Version is the first line of what the binary says with --version.
	Version string

	help string
}

// Find returns the folder of the module tools, looking upward from dir and at dir/tools.
func Find(dir string) (string, error) {
	for d := dir; ; d = filepath.Dir(d) {
		for _, try := range []string{d, filepath.Join(d, "tools")} {
			b, err := os.ReadFile(filepath.Join(try, "go.mod"))
			if err == nil && bytes.Contains(b, []byte("\nmodule vigil/tools\n")) {
				return try, nil
			}
		}
		if d == filepath.Dir(d) {
			return "", errors.New("the module tools is neither here nor above: run from inside the repository")
		}
	}
}

// Make builds what spec names into dir. A spec is "vigil" or "etcd", built from the module folder's
// surroundings, or KIND=PATH for a binary that exists, as "vigil=/path/to/an/older/vigil".
func Make(ctx context.Context, module, spec, dir string) (*Build, error) {
	kind, path, given := strings.Cut(spec, "=")
	b := &Build{Name: kind, Kind: kind, Path: path}
	var from, pkg string
	switch kind {
	case "vigil":
		from, pkg = filepath.Dir(module), "./cmd/vigil"
	case "etcd":
		from, pkg = module, "./bench/etcdpeer"
	default:
		return nil, fmt.Errorf("system %q: want vigil, etcd, vigil=PATH or etcd=PATH", spec)
	}
	if given {
		b.Name = kind + "=" + filepath.Base(path)
	} else {
		b.Path = filepath.Join(dir, kind)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.Path, pkg)
		cmd.Dir = from
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building %s: %w\n%s", kind, err, out)
		}
	}
	out, err := exec.CommandContext(ctx, b.Path, "--version").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w\n%s", b.Path, err, out)
	}
	b.Version, _, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	// The exit code of help may differ; only its text matters.
	out, err = exec.CommandContext(ctx, b.Path, "--help").CombinedOutput()
	if err != nil && len(out) == 0 {
		return nil, fmt.Errorf("%s --help: %w", b.Path, err)
	}
	b.help = string(out)
	return b, nil
}

// Has reports whether the binary's help names a flag.
func (b *Build) Has(flag string) bool {
	for rest := b.help; ; {
		i := strings.Index(rest, "--"+flag)
		if i < 0 {
			return false
		}
		rest = rest[i+2+len(flag):]
		if rest == "" || strings.IndexByte(" =\n\t'", rest[0]) >= 0 {
			return true
		}
	}
}
