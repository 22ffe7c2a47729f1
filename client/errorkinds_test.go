package client

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestErrorKinds checks that every text in the API's list of errors has an error of this package.
func TestErrorKinds(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}",
		"go.etcd.io/etcd/api/v3/v3rpc/rpctypes").Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(token.NewFileSet(),
		filepath.Join(strings.TrimSpace(string(dir)), "error.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil || !strings.HasPrefix(text, "etcdserver: ") {
			return true
		}
		found++
		if kindOf(text) == nil {
			t.Errorf("%q has no error", text)
		}
		if kindOf("rpc error: code = Unknown desc = "+text) == nil {
			t.Errorf("%q with a code in front has no error", text)
		}
		return true
	})
	if found < 50 || found != len(kinds) {
		t.Errorf("%d texts, %d errors", found, len(kinds))
	}
}
