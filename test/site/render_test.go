package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	href = regexp.MustCompile(`<a href="([^"]*)"`)
	id   = regexp.MustCompile(`id="([^"]*)"`)
)

// TestSite renders everything: each link of each page leads to a file of the site, and to a heading that it has.
func TestSite(t *testing.T) {
	out := t.TempDir()
	n, err := render("../..", out)
	if err != nil || n < 50 {
		t.Fatal(n, err)
	}
	ids := map[string]map[string]bool{}
	pages := map[string]string{}
	err = filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".html" {
			return err
		}
		b, err := os.ReadFile(path)
		pages[path] = string(b)
		ids[path] = map[string]bool{}
		for _, m := range id.FindAllStringSubmatch(string(b), -1) {
			ids[path][m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for path, text := range pages {
		for _, m := range href.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), filepath.FromSlash(target))
			}
			if _, err := os.Stat(to); err != nil || anchor != "" && !ids[to][anchor] {
				t.Errorf("%s: %s leads nowhere", strings.TrimPrefix(path, out+"/"), m[1])
			}
		}
	}
	if links < 300 {
		t.Errorf("only %d links", links)
	}
	if index := pages[filepath.Join(out, "docs", "README.html")]; !strings.Contains(index, "<table>") || !strings.Contains(index, `<h2 id="begin">`) {
		t.Error("docs/README.html has no table, or no heading")
	}
}

// TestBrokenLink: a link to a file that does not exist is an error.
func TestBrokenLink(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.md"), []byte("[x](none.md)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := render(root, t.TempDir()); err == nil || !strings.Contains(err.Error(), "none.md") {
		t.Error(err)
	}
}
