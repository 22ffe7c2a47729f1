package archtest

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackageComments finds packages that do not say what they are for. No other document does.
func TestPackageComments(t *testing.T) {
	for pkg := range table {
		files, err := filepath.Glob(filepath.Join("../..", pkg, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil,
				parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			start := "Package " + file.Name.Name + " "
			if file.Name.Name == "main" {
				start = "" // "Vigil is …", or "Command …"
			}
			found = found || file.Doc != nil && strings.HasPrefix(file.Doc.Text(), start)
		}
		if !found {
			t.Errorf("%s has no package comment", pkg)
		}
	}
}
