package main

import (
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// writeArchive writes the programs of a platform with their documents, for use without a package
// manager.
func (r *release) writeArchive(p platform, out string) error {
	top := r.folder(r.servers, p)
	files, err := r.basics(r.servers, p, top)
	if err != nil {
		return err
	}
	pages, err := r.manualPages(top + "/share/man")
	if err != nil {
		return err
	}
	read, err := r.pages(top)
	if err != nil {
		return err
	}
	files = append(files, read...)
	server := p.os == "linux"
	for _, page := range pages {
		if server || !strings.HasPrefix(filepath.Base(page.name), "vigil.") {
			files = append(files, page)
		}
	}
	for _, f := range r.completions(p,
		completionDirs{"share/completions/bash", "share/completions/fish",
			"share/completions/zsh"}) {
		f.name = top + f.name
		files = append(files, f)
	}
	copied := map[string]string{"CHANGELOG.md": "CHANGELOG.md"}
	if server {
		copied["packaging/systemd/vigil.service"] = "systemd/vigil.service"
		copied["packaging/systemd/vigil.yaml"] = "systemd/vigil.yaml"
	}
	for from, to := range copied {
		b, err := r.source.read(from)
		if err != nil {
			return err
		}
		files = append(files, text(top+"/"+to, b))
	}
	return r.writeTarball(out, top, files)
}

// writeBucketArchive writes vigil-bucket with its documents, for all systems that vigilctl is for.
func (r *release) writeBucketArchive(p platform, out string) error {
	top := r.folder(r.buckets, p)
	files, err := r.basics(r.buckets, p, top)
	if err != nil {
		return err
	}
	page, err := manualPage(top+"/share/man", bucketPage,
		r.manual.bucketPage(r.version, r.source.time))
	if err != nil {
		return err
	}
	return r.writeTarball(out, top, append(files, page))
}

// basics returns the programs of a product, licences and the list of the parts.
func (r *release) basics(d *product, p platform, top string) (files []file, err error) {
	for _, name := range d.on(p) {
		files = append(files,
			file{name: top + "/bin/" + name, mode: 0o755, source: r.program(p, name)})
	}
	documents, err := r.documents(d, top)
	return append(files, documents...), err
}

func (r *release) writeTarball(out, top string, files []file) error {
	return r.writeFile(filepath.Join(out, top+".tar.gz"), func(w io.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.DefaultCompression)
		if err != nil {
			return err
		}
		if err := writeTar(z, files, r.source.time); err != nil {
			return err
		}
		return z.Close()
	})
}

// writeFile creates a file of the release.
func (r *release) writeFile(name string, write func(io.Writer) error) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	b := bufio.NewWriter(f)
	if err := write(b); err != nil {
		return err
	}
	if err := b.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// writeSums writes SHA256SUMS, for `sha256sum --check`, over all files of a directory.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(b), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
