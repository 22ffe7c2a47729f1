package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
)

// platform is a target of the programs.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

// everyPlatform lists the targets of a release. Servers run on Linux only; elsewhere there is vigilctl.
var everyPlatform = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

func (p platform) programs() []string {
	if p.os == "linux" {
		return []string{"vigil", "vigilctl"}
	}
	return []string{"vigilctl"}
}

// release is one version that is built from a source.
type release struct {
	source    *source
	version   string
	platforms []platform
	log       io.Writer
	// paths leaves the paths of the sources in the programs, so that packages which are compiled already are used.
	paths bool

	parts    string // directory of the built programs
	stage    string // directory of what is packed
	manual   *manual
	licences *licences
	sbom     []byte
}

// pack writes all files of the release into out. stage is an empty directory for what is written on the way.
func (r *release) pack(stage, out string) error {
	r.stage = stage
	var images []platform
	for _, p := range r.platforms {
		fmt.Fprintf(r.log, "packing %s\n", p)
		if err := r.writeArchive(p, out); err != nil {
			return fmt.Errorf("archive for %s: %w", p, err)
		}
		if p.os != "linux" {
			continue
		}
		images = append(images, p)
		if err := r.writePackages(p, out); err != nil {
			return fmt.Errorf("packages for %s: %w", p, err)
		}
	}
	if err := r.writeImage(images, filepath.Join(out, "vigil-"+r.version+"-oci.tar")); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := os.WriteFile(filepath.Join(out, "vigil-"+r.version+".cdx.json"), r.sbom, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "vigil-"+r.version+"-licences.txt"), r.licences.text, 0o644); err != nil {
		return err
	}
	return writeSums(out)
}

// prepare builds what several of the files contain: programs, manuals, completions, licences and the list of the parts.
func (r *release) prepare(ctx context.Context, parts string) error {
	r.parts = parts
	host := platform{runtime.GOOS, runtime.GOARCH}
	for _, p := range r.platforms {
		if err := r.compile(ctx, p, p.programs()); err != nil {
			return err
		}
	}
	if !slices.Contains(r.platforms, host) || host.os != "linux" {
		if err := r.compile(ctx, host, []string{"vigil", "vigilctl"}); err != nil {
			return err
		}
	}
	var err error
	if r.manual, err = readManual(ctx, r.program(host, "vigil"), r.program(host, "vigilctl")); err != nil {
		return fmt.Errorf("help of the programs: %w", err)
	}
	linked, err := r.modules()
	if err != nil {
		return err
	}
	if r.licences, err = readLicences(ctx, r.source, linked); err != nil {
		return err
	}
	r.sbom, err = r.describe(linked)
	return err
}

// program is the file of a built program.
func (r *release) program(p platform, name string) string {
	return filepath.Join(r.parts, p.String(), name)
}

// compile builds programs for a platform. The version control is not asked, as its answer depends on how the repository was cloned.
func (r *release) compile(ctx context.Context, p platform, programs []string) error {
	fmt.Fprintf(r.log, "building %s\n", p)
	dir, err := filepath.Abs(filepath.Join(r.parts, p.String()))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	set := " -X " + r.source.module + "/internal/release."
	args := []string{"build", "-trimpath=" + strconv.FormatBool(!r.paths), "-buildvcs=false", "-ldflags=-s -w -buildid=" + set + "Version=" + r.version + set + "revision=" + r.source.commit, "-o", dir + "/"}
	for _, name := range programs {
		args = append(args, "./cmd/"+name)
	}
	if _, err := output(ctx, r.source.root, goEnv(p.os, p.arch), "go", args...); err != nil {
		return fmt.Errorf("programs for %s: %w", p, err)
	}
	return nil
}
