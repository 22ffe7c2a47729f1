package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var testFunc = regexp.MustCompile(`(?m)^(//vigil:norace\n)?func (Test\w+)\(`)

// TestMarks: ./check selects the tests that it runs without the race detector by their names, so a
// name is marked at all its tests or at none. Otherwise one of them would never run.
func TestMarks(t *testing.T) {
	marked, plain := map[string]string{}, map[string]string{}
	for _, dir := range []string{"cmd", "docs", "internal", "server"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || !strings.HasSuffix(path, "_test.go") {
					return err
				}
				b, err := os.ReadFile(path)
				for _, m := range testFunc.FindAllStringSubmatch(string(b), -1) {
					if m[1] != "" {
						marked[m[2]] = path
					} else {
						plain[m[2]] = path
					}
				}
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(marked) == 0 {
		t.Error("no test is marked")
	}
	for name, path := range marked {
		if other := plain[name]; other != "" {
			t.Errorf("%s is marked //vigil:norace in %s and not in %s", name, path, other)
		}
	}
}
