package pages

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s#]*)(#[^)\s]*)?\)`)
	heading  = regexp.MustCompile(`^#{1,6} (.*)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	code     = regexp.MustCompile("`[^`]*`")
)

// markdown returns the paths of all Markdown files from the root.
func markdown(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root &&
			(strings.HasPrefix(d.Name(), ".") ||
				slices.Contains([]string{"testdata", "bin", "node_modules"}, d.Name())) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			name, err := filepath.Rel(root, path)
			out = append(out, filepath.ToSlash(name))
			return err
		}
		return nil
	})
	if err != nil || len(out) < 50 {
		t.Fatal(len(out), err)
	}
	return out
}

// prose returns the lines of a page outside of fenced blocks and comments.
func prose(t *testing.T, page string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	inside, comment := false, false
	for _, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case comment:
			comment = !strings.HasSuffix(trimmed, "-->")
		case strings.HasPrefix(trimmed, "```"):
			inside = !inside
		case inside:
		case strings.HasPrefix(trimmed, "<!--"):
			comment = !strings.HasSuffix(trimmed, "-->")
		default:
			out = append(out, line)
		}
	}
	return out
}

// anchors returns the names by which the headings of a page can be linked.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, line := range prose(t, page) {
		if m := heading.FindStringSubmatch(line); m != nil {
			out["#"+strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""),
				" ", "-")] = true
		}
	}
	return out
}

// TestLinks: every file and every heading that a Markdown file links exists.
func TestLinks(t *testing.T) {
	for _, page := range markdown(t) {
		for _, line := range prose(t, page) {
			for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(line, "``"), -1) {
				target, anchor := m[1], m[2]
				if strings.Contains(target, ":") {
					// The network is no part of the test; a mistake in the address itself is found.
					if u, err := url.Parse(target); err != nil || u.Scheme != "https" ||
						!strings.Contains(u.Host, ".") {
						t.Errorf("%s: %s: want an address of https", page, m[0])
					}
					continue
				}
				file := page
				if target != "" {
					file = filepath.ToSlash(filepath.Join(filepath.Dir(page), target))
				}
				switch info, err := os.Stat(filepath.Join(root, file)); {
				case err != nil:
					t.Errorf("%s: %s: there is no such file", page, m[0])
				case anchor != "" && (info.IsDir() || !anchors(t, file)[anchor]):
					t.Errorf("%s: %s: there is no such heading", page, m[0])
				}
			}
		}
	}
}

// TestPagesInCode: every page that a program names in its output, or a file for monitoring or
// installation, exists.
func TestPagesInCode(t *testing.T) {
	page := regexp.MustCompile(`\bdocs/[\w/-]+\.md(#[\w-]+)?`)
	found := map[string]bool{}
	for _, s := range literals(t) {
		for _, name := range page.FindAllString(s, -1) {
			found[name] = true
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "packaging"),
		func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			for _, name := range page.FindAllString(string(text), -1) {
				found[name] = true
			}
			return err
		})
	if err != nil || len(found) < 20 {
		t.Fatal(len(found), err)
	}
	for name := range found {
		file, anchor, _ := strings.Cut(name, "#")
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Errorf("%s: there is no such page", name)
		} else if anchor != "" && !anchors(t, file)["#"+anchor] {
			t.Errorf("%s: there is no such heading", name)
		}
	}
}

// TestIndex: docs/README.md links every page of docs, or the index of the folder does.
func TestIndex(t *testing.T) {
	linked := map[string]bool{}
	for _, index := range []string{"docs/README.md", "docs/operations/README.md",
		"docs/vigilctl/README.md", "docs/client/README.md"} {
		for _, m := range link.FindAllStringSubmatch(strings.Join(prose(t, index), "\n"), -1) {
			linked[filepath.ToSlash(filepath.Join(filepath.Dir(index), m[1]))] = true
		}
	}
	for _, page := range markdown(t) {
		if strings.HasPrefix(page, "docs/") && page != "docs/README.md" && !linked[page] {
			t.Errorf("no index links %s", page)
		}
	}
}
