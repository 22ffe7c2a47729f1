package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// file is a file or directory to pack. Its contents are in body, or in the file source.
type file struct {
	name     string // absolute in packages and images, relative in archives
	mode     fs.FileMode
	body     []byte
	source   string
	conf     bool // a configuration file that its administrator changes
	uid, gid int
}

func dir(name string, mode fs.FileMode) file { return file{name: name, mode: mode | fs.ModeDir} }

func text(name string, body []byte) file { return file{name: name, mode: 0o644, body: body} }

func (f file) contents() ([]byte, error) {
	if f.source != "" {
		return os.ReadFile(f.source)
	}
	return f.body, nil
}

// writeTar writes files, the directories above them, and their names in order.
func writeTar(w io.Writer, files []file, at time.Time) error {
	all := slices.Clone(files)
	seen := map[string]bool{"/": true, ".": true}
	for _, f := range files {
		if f.mode.IsDir() {
			seen[path.Clean(f.name)] = true
		}
	}
	for _, f := range files {
		for up := path.Dir(f.name); !seen[up]; up = path.Dir(up) {
			seen[up] = true
			all = append(all, dir(up, 0o755))
		}
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	t := tar.NewWriter(w)
	for _, f := range all {
		if err := f.writeTo(t, at); err != nil {
			return err
		}
	}
	return t.Close()
}

func (f file) writeTo(t *tar.Writer, at time.Time) error {
	body, err := f.contents()
	if err != nil {
		return err
	}
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.name, "/"), Size: int64(len(body)),
		Mode: int64(f.mode.Perm()),
		Uid:  f.uid, Gid: f.gid, ModTime: at, Format: tar.FormatUSTAR,
	}
	if f.mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	if f.mode.IsDir() {
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = t.Write(body)
	return err
}

// compress returns what `gzip -9n` would, without name and time.
func compress(b []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	err = z.Close()
	return out.Bytes(), err
}
