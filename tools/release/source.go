package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// source is a commit that is checked out.
type source struct {
	root   string // directory of the repository
	module string // path of its root module
	commit string
	time   time.Time // of the commit: SOURCE_DATE_EPOCH
}

// openSource finds the repository that dir is in.
func openSource(ctx context.Context, dir string) (*source, error) {
	for _, tool := range []string{"git", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, mistakef("the program %s is missing: a release needs git and go in PATH",
				tool)
		}
	}
	root, err := output(ctx, dir, nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, mistakef("a release needs a clone of the repository by git: %v", err)
	}
	s := &source{root: root}
	if s.module, err = output(ctx, root, goEnv("", ""), "go", "list", "-m"); err != nil {
		return nil, err
	}
	head, err := output(ctx, root, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return nil, mistakef("a release needs a commit: %v", err)
	}
	commit, seconds, _ := strings.Cut(head, " ")
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("time of commit %s: %w", commit, err)
	}
	s.commit, s.time = commit, time.Unix(epoch, 0).UTC()
	return s, nil
}

// version returns the version that the sources name.
func (s *source) version() (string, error) {
	const name = "internal/release/release.go"
	text, err := s.read(name)
	if err != nil {
		return "", err
	}
	found := namedVersion.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s names no version", name)
	}
	return string(found[1]), checkVersion(string(found[1]))
}

var namedVersion = regexp.MustCompile(`(?m)^var Version = "([^"]+)"$`)

// checkClean rejects files that differ from the commit.
func (s *source) checkClean(ctx context.Context) error {
	changed, err := output(ctx, s.root, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed == "" {
		return nil
	}
	lines := strings.Split(changed, "\n")
	first := strings.Fields(lines[0])
	return mistakef("%d files differ from commit %.12s, the first is %s: commit, stash or remove them", len(lines), s.commit, first[len(first)-1])
}

// read returns a file of the repository.
func (s *source) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(s.root, name))
}

// output runs a program and returns what it prints, without the last newline. env is added to this
// process's environment.
func output(ctx context.Context, dir string, env []string, program string,
	args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	cmd.Env = append(slices.DeleteFunc(os.Environ(), changesOutput), env...)
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = errors.New(text)
		}
		return "", fmt.Errorf("%s %s: %w", program, args[0], err)
	}
	return strings.TrimSpace(stdout.String()), nil
}

// changesOutput reports whether a variable could change what git and go print or build. The others,
// such as GOPROXY, are kept.
func changesOutput(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{"GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT", "GODEBUG",
		"GOWORK", "GOAMD64", "GOARM64", "GOFIPS140", "LANGUAGE"}, name) ||
		strings.HasPrefix(name, "CGO_") || strings.HasPrefix(name, "GIT_") ||
		strings.HasPrefix(name, "LC_")
}

// goEnv is the environment of a build for a platform.
func goEnv(goos, goarch string) []string {
	env := []string{"CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOAMD64=v1",
		"GOARM64=v8.0", "GOENV=off", "LANG=C"}
	if goos != "" {
		env = append(env, "GOOS="+goos, "GOARCH="+goarch)
	}
	return env
}
