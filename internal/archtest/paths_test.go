package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pathInText matches a path from the root of the repository, between backticks.
var pathInText = regexp.MustCompile("`((?:client|cmd|docs|examples|internal|packaging|scripts|server|test|tools)/[\\w./-]*\\w)`")

// notPaths look like paths, but are not: a tag, and a folder of Kubernetes.
var notPaths = []string{"client/v0.1.0", "test/integration/etcd"}

// TestPathsInDocuments finds paths in Markdown files that do not exist.
func TestPathsInDocuments(t *testing.T) {
	const root = "../.."
	n := 0
	err := filepath.WalkDir(root, func(abs string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && abs != root &&
			(strings.HasPrefix(d.Name(), ".") ||
				slices.Contains([]string{"testdata", "bin", "node_modules"}, d.Name())) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(abs) != ".md" {
			return nil
		}
		text, err := os.ReadFile(abs)
		if err != nil {
			return err
		}
		for _, m := range pathInText.FindAllStringSubmatch(string(text), -1) {
			n++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil &&
				!slices.Contains(notPaths, m[1]) {
				t.Errorf("%s: %s does not exist",
					strings.TrimPrefix(filepath.ToSlash(abs), root+"/"), m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 100 {
		t.Errorf("only %d paths were found in Markdown files: the test does not see them", n)
	}
}
