package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// linked are the modules that the programs of a release contain, by path.
type linked struct {
	goVersion string
	modules   []*debug.Module // of others, sorted
}

// modules reads which modules the built programs of a product contain, over all platforms.
func (r *release) modules(d *product) (*linked, error) {
	l, seen := &linked{}, map[string]bool{}
	for _, p := range r.platforms {
		for _, name := range d.on(p) {
			info, err := buildinfo.ReadFile(r.program(p, name))
			if err != nil {
				return nil, fmt.Errorf("build information of %s: %w", name, err)
			}
			l.goVersion = info.GoVersion
			for _, m := range info.Deps {
				own := m.Path == r.source.module || strings.HasPrefix(m.Path, r.source.module+"/")
				if own || seen[m.Path] {
					continue
				}
				seen[m.Path] = true
				l.modules = append(l.modules, m)
			}
		}
	}
	slices.SortFunc(l.modules, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	return l, nil
}

// licences are the licences of the linked modules.
type licences struct {
	text []byte            // all of them
	ids  map[string]string // SPDX expression by module path; stdlib is Go's own library
}

// stdlib is the name of Go's own library among the modules.
const stdlib = "stdlib"

// goLicence is the licence of Go. It is copied, as not every distribution of Go has it next to the
// library.
//
//go:embed files/go-licence.txt
var goLicence []byte

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// readLicences reads the licence files of the modules from the module cache. dir is the directory
// of the module that requires them.
func readLicences(ctx context.Context, dir string, l *linked) (*licences, error) {
	out := &licences{ids: map[string]string{stdlib: "BSD-3-Clause"}}
	var b bytes.Buffer
	fmt.Fprintf(&b, "Vigil contains the software below. Its own licence is in the file LICENSE.\n")
	section(&b, "Go's library and run time "+l.goVersion, stdlib, goLicence)
	dirs, err := moduleDirs(ctx, dir, l)
	if err != nil {
		return nil, err
	}
	for _, m := range l.modules {
		ids, err := moduleLicences(&b, m, dirs[m.Path])
		if err != nil {
			return nil, err
		}
		out.ids[m.Path] = ids
	}
	out.text = b.Bytes()
	return out, nil
}

// moduleLicences appends the licence files of a module and returns their SPDX expression.
func moduleLicences(b *bytes.Buffer, m *debug.Module, dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("licence of module %s: %w", m.Path, err)
	}
	var ids []string
	for _, e := range entries {
		if !licenceFile.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		section(b, m.Path+" "+m.Version, e.Name(), text)
		for _, id := range identify(string(text)) {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) == 0 {
		return "", fmt.Errorf("module %s %s has no licence that is known: look at %s, and add its text to licences.go", m.Path, m.Version, dir)
	}
	slices.Sort(ids)
	return strings.Join(ids, " AND "), nil
}

func section(b *bytes.Buffer, title, file string, text []byte) {
	line := strings.Repeat("=", 78)
	fmt.Fprintf(b, "\n%s\n%s (%s)\n%s\n\n%s\n", line, title, file, line,
		bytes.TrimSpace(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))))
}

// known has for each licence a sentence that no other one has; spaces count as one.
var known = []struct{ id, sentence string }{
	{"Apache-2.0", "Apache License Version 2.0, January 2004"},
	{"BSD-3-Clause", "may be used to endorse or promote products derived from"},
	{"BSD-2-Clause", "provided that the following conditions are met"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
}

// identify returns the licences whose text is in a file, none for a notice.
func identify(text string) []string {
	text = strings.Join(strings.Fields(text), " ")
	var out []string
	for _, k := range known {
		if k.id == "BSD-2-Clause" && slices.Contains(out, "BSD-3-Clause") ||
			!strings.Contains(text, k.sentence) {
			continue
		}
		out = append(out, k.id)
	}
	return out
}

// moduleDirs returns where the module cache has the modules.
func moduleDirs(ctx context.Context, dir string, l *linked) (map[string]string, error) {
	args := []string{"list", "-m", "-json"}
	for _, m := range l.modules {
		args = append(args, m.Path)
	}
	text, err := output(ctx, dir, goEnv("", ""), "go", args...)
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var m struct{ Path, Dir string }
		if err := d.Decode(&m); err != nil {
			return nil, fmt.Errorf("list of modules: %w", err)
		}
		dirs[m.Path] = m.Dir
	}
	return dirs, nil
}
