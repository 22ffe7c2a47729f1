package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// mistake is an error of the caller.
type mistake struct{ text string }

func (m mistake) Error() string { return m.text }

func mistakef(format string, args ...any) error { return mistake{fmt.Sprintf(format, args...)} }

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := build(ctx, args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "release:", strings.Join(strings.Fields(err.Error()), " "))
	var m mistake
	if errors.As(err, &m) {
		return 2
	}
	return 1
}

const usage = `usage: release -version VERSION [-platform OS/ARCH,...] [-out DIR]

Builds the packages, archives and images of VERSION, like 1.2.3 or 1.2.3-rc.1,
from the commit of the current directory into DIR/VERSION (dist/VERSION).
With -platform, as linux/amd64, it builds what is for these platforms, in a
fraction of the time; VERSION is the one that the sources name then, if none is
given.
`

func build(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	version := flags.String("version", "", "")
	platforms := flags.String("platform", "", "")
	out := flags.String("out", "dist", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return err
	case err != nil:
		return mistakef("%v; release -help lists the flags", err)
	case flags.NArg() > 0:
		return mistakef("unexpected argument %q; release -help lists the flags", flags.Arg(0))
	}
	targets, err := parsePlatforms(*platforms)
	if err != nil {
		return err
	}
	named := *version == "" && *platforms != "" // by the sources
	if !named {
		if err := checkVersion(*version); err != nil {
			return err
		}
	}
	src, err := openSource(ctx, ".")
	if err != nil {
		return err
	}
	if err := src.checkClean(ctx); err != nil {
		return err
	}
	if named {
		if *version, err = src.version(); err != nil {
			return err
		}
	}
	r := newRelease(src, *version, targets, stdout)
	return r.writeAll(ctx, *out)
}

// parsePlatforms returns the platforms of a list, all if it is empty.
func parsePlatforms(list string) ([]platform, error) {
	if list == "" {
		return everyPlatform, nil
	}
	var targets []platform
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(everyPlatform,
			func(p platform) bool { return p.os+"/"+p.arch == name })
		if i < 0 {
			var known []string
			for _, p := range everyPlatform {
				known = append(known, p.os+"/"+p.arch)
			}
			return nil, mistakef("there are no programs for platform %q: choose from %s", name,
				strings.Join(known, ", "))
		}
		if !slices.Contains(targets, everyPlatform[i]) {
			targets = append(targets, everyPlatform[i])
		}
	}
	return targets, nil
}

var versionForm = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// checkVersion accepts the versions that mean the same as a Go module's, a Debian package's and an
// image's: without build metadata.
func checkVersion(v string) error {
	switch {
	case v == "":
		return mistakef("no version is given: make release VERSION=1.2.3")
	case versionForm.MatchString(v):
		return nil
	case versionForm.MatchString(strings.TrimPrefix(v, "v")):
		return mistakef("version %q: leave out the v: VERSION=%s", v, v[1:])
	}
	return mistakef("version %q is not like 1.2.3 or 1.2.3-rc.1", v)
}

// writeAll builds everything into dir/VERSION, which it replaces.
func (r *release) writeAll(ctx context.Context, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, ".building-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	complete := filepath.Join(work, "complete")
	if err := os.Mkdir(complete, 0o755); err != nil {
		return err
	}
	if err := r.prepare(ctx, filepath.Join(work, "parts")); err != nil {
		return err
	}
	if err := r.pack(filepath.Join(work, "stage"), complete); err != nil {
		return err
	}
	final := filepath.Join(dir, r.version)
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	if err := os.Rename(complete, final); err != nil {
		return err
	}
	return r.list(final)
}

// list prints the files of the release with their sizes.
func (r *release) list(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.log, "%s, commit %s:\n", dir, r.source.commit)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(r.log, "%11d  %s\n", info.Size(), e.Name())
	}
	return nil
}
