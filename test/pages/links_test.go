package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the directory of the repository.
const root = "../.."

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
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "bin", "node_modules"}, d.Name())) {
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

// prose returns the lines of a page outside of fenced blocks.
func prose(t *testing.T, page string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inside = !inside
		} else if !inside {
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
			out["#"+strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
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
				if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
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

// TestIndex: docs/README.md links every page of docs, or the index of the folder does.
func TestIndex(t *testing.T) {
	linked := map[string]bool{}
	for _, index := range []string{"docs/README.md", "docs/operations/README.md", "docs/vigilctl/README.md", "docs/client/README.md"} {
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
