package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Limits of size, for the code of the root module and of the client's. Test files are not counted.
const (
	maxMethods       = 60   // of one type
	maxPackageLines  = 4000 // of one package, without those below it
	maxFunctionLines = 100  // from func to the closing brace
)

// An exception is a limit of its own, which may only fall. It is removed when the general limit suffices.
type exception struct {
	limit int
	why   string
}

// manyMethods are the types with more than maxMethods methods: folder and name.
var manyMethods = map[string]exception{}

// largePackages are the folders with more than maxPackageLines lines.
var largePackages = map[string]exception{}

// longFunctions are the functions with more than maxFunctionLines lines: folder, receiver and name.
var longFunctions = map[string]exception{}

// sizes holds the measured sizes of the tree, by the keys of the tables above.
type sizes struct{ methods, packages, functions map[string]int }

func TestLimits(t *testing.T) {
	s := measure(t)
	check := func(what string, measured map[string]int, limit int, table map[string]exception) {
		for _, name := range slices.Sorted(maps.Keys(measured)) {
			n := measured[name]
			e, excepted := table[name]
			switch {
			case n > limit && !excepted:
				t.Errorf("%s has %d %s, at most %d: split it", name, n, what, limit)
			case excepted && n > e.limit:
				t.Errorf("%s has %d %s, at most %d as an exception (%s)", name, n, what, e.limit, e.why)
			case excepted && n <= limit:
				t.Logf("%s has %d %s: it needs no exception any more", name, n, what)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if _, ok := measured[name]; !ok {
				t.Logf("%s is an exception for %s, but does not exist", name, what)
			}
			if table[name].why == "" {
				t.Errorf("%s is an exception for %s without a reason", name, what)
			}
		}
	}
	check("methods", s.methods, maxMethods, manyMethods)
	check("lines", s.packages, maxPackageLines, largePackages)
	check("lines", s.functions, maxFunctionLines, longFunctions)
}

// measure reads every Go file of the two modules that is neither a test nor generated.
func measure(t *testing.T) sizes {
	t.Helper()
	s := sizes{map[string]int{}, map[string]int{}, map[string]int{}}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipForeign(root, path, d)
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(dir)
		s.packages[pkg] += bytes.Count(text, []byte("\n"))
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := pkg + "." + fn.Name.Name
			if fn.Recv != nil {
				receiver := fmt.Sprintf("%s.%s", pkg, receiverType(fn.Recv.List[0].Type))
				s.methods[receiver]++
				name = receiver + "." + fn.Name.Name
			}
			s.functions[name] = max(s.functions[name], fset.Position(fn.End()).Line-fset.Position(fn.Pos()).Line+1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// skipForeign leaves out what is not code of the root module or the client's.
func skipForeign(root, path string, d fs.DirEntry) error {
	if path == root {
		return nil
	}
	if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != filepath.Join(root, "client") {
		return filepath.SkipDir
	}
	return nil
}

// receiverType returns the name of a receiver's type without pointer and type parameters.
func receiverType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverType(e.X)
	case *ast.IndexExpr:
		return receiverType(e.X)
	case *ast.IndexListExpr:
		return receiverType(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}
