package main

import (
	"context"
	"errors"
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

// everyPlatform lists the targets of a release. Servers run on Linux only; elsewhere there is
// vigilctl.
var everyPlatform = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"},
	{"darwin", "arm64"}}

// release is one version that is built from a source.
type release struct {
	source    *source
	version   string
	platforms []platform
	log       io.Writer
	// servers has the programs of a member and of operators, buckets the one for the storage of
	// clouds.
	servers, buckets *product
	// paths leaves the paths of the sources in the programs, so that packages which are compiled
	// already are used.
	paths bool

	parts  string // directory of the built programs
	stage  string // directory of what is packed
	manual *manual
}

func newRelease(s *source, version string, platforms []platform, log io.Writer) *release {
	return &release{source: s, version: version, platforms: platforms, log: log, servers: servers(),
		buckets: buckets()}
}

func (r *release) products() []*product { return []*product{r.servers, r.buckets} }

// pack writes all files of the release into out. stage is an empty directory for what is written on
// the way.
func (r *release) pack(stage, out string) error {
	r.stage = stage
	var images []platform
	for _, p := range r.platforms {
		fmt.Fprintf(r.log, "packing %s\n", p)
		if err := errors.Join(r.writeArchive(p, out), r.writeBucketArchive(p, out)); err != nil {
			return fmt.Errorf("archives for %s: %w", p, err)
		}
		if p.os != "linux" {
			continue
		}
		images = append(images, p)
		if err := r.writePackages(p, out); err != nil {
			return fmt.Errorf("packages for %s: %w", p, err)
		}
	}
	if len(images) == 0 {
		fmt.Fprintln(r.log, "no image: there is no Linux among the platforms")
	} else if err := r.writeImage(images,
		filepath.Join(out, "vigil-"+r.version+"-oci.tar")); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	for _, d := range r.products() {
		if err := os.WriteFile(filepath.Join(out, d.name+"-"+r.version+".cdx.json"), d.sbom,
			0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, d.name+"-"+r.version+"-licences.txt"),
			d.licences.text, 0o644); err != nil {
			return err
		}
	}
	return writeSums(out)
}

// prepare builds what several of the files contain: programs, manuals, completions, licences and
// the list of the parts.
func (r *release) prepare(ctx context.Context, parts string) error {
	r.parts = parts
	host := platform{runtime.GOOS, runtime.GOARCH}
	for _, p := range r.platforms {
		for _, d := range r.products() {
			if err := r.compile(ctx, p, d, d.on(p)); err != nil {
				return err
			}
		}
	}
	if !slices.Contains(r.platforms, host) || host.os != "linux" {
		for _, d := range r.products() {
			if err := r.compile(ctx, host, d, d.on(platform{"linux", host.arch})); err != nil {
				return err
			}
		}
	}
	var err error
	if r.manual, err = readManual(ctx, r.program(host, "vigil"), r.program(host, "vigilctl"),
		r.program(host, "vigil-bucket")); err != nil {
		return fmt.Errorf("help of the programs: %w", err)
	}
	for _, d := range r.products() {
		linked, err := r.modules(d)
		if err != nil {
			return err
		}
		if d.licences, err = readLicences(ctx, r.directory(d), linked); err != nil {
			return err
		}
		if d.sbom, err = r.describe(d, linked); err != nil {
			return err
		}
	}
	return nil
}

// program is the file of a built program.
func (r *release) program(p platform, name string) string {
	return filepath.Join(r.parts, p.String(), name)
}

// compile builds programs for a platform. The version control is not asked, as its answer depends
// on how the repository was cloned.
func (r *release) compile(ctx context.Context, p platform, d *product, programs []string) error {
	fmt.Fprintf(r.log, "building %s for %s\n", d.name, p)
	dir, err := filepath.Abs(filepath.Join(r.parts, p.String()))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	set := " -X " + r.source.module + "/internal/release."
	args := []string{"build", "-trimpath=" + strconv.FormatBool(!r.paths), "-buildvcs=false",
		"-ldflags=-s -w -buildid=" + set + "Version=" + r.version + set + "revision=" +
			r.source.commit}
	for _, x := range d.programs {
		if !slices.Contains(programs, x.name) {
			continue
		}
		if _, err := output(ctx, r.directory(d), goEnv(p.os, p.arch), "go",
			append(args, "-o", filepath.Join(dir, x.name), x.source)...); err != nil {
			return fmt.Errorf("%s for %s: %w", x.name, p, err)
		}
	}
	return nil
}
