package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s#]*)(#[^)\s]*)?\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// anchors are what the headings of a page can be linked by.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		out["#"+strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

// TestLinks: what the pages for operators link to is there, and the index has every page.
func TestLinks(t *testing.T) {
	dir := filepath.Join(root(t), "docs", "operations")
	pages, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	index := read(t, "docs/operations/README.md")
	for _, page := range append(pages, filepath.Join(root(t), "packaging", "README.md")) {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("%s is not in the index", name)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			target, anchor := m[1], m[2]
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			to, err := os.ReadFile(file)
			if info, statErr := os.Stat(file); statErr == nil && info.IsDir() {
				continue
			}
			switch {
			case err != nil:
				t.Errorf("%s: %s is not there", filepath.Base(page), m[0])
			case anchor != "" && !anchors(string(to))[anchor]:
				t.Errorf("%s: %s: no such section", filepath.Base(page), m[0])
			}
		}
	}
}
