package archtest

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The handler of internal/logline limits the rate of log lines for each place in the code. It sees
// every line only if no package writes past it, and recognizes a place by the constant text at the
// beginning of its message.

// logMethods are those of slog.Logger, with the place of the message.
var logMethods = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"Log": 2, "LogAttrs": 2,
}

var isLogger = regexp.MustCompile(`(?i)(log|logger|slog)$`)

// wrappers pass on messages whose callers the test checks, or messages of a library.
var wrappers = map[string]string{
	"internal/member/peer/transport.go:line":        "its callers are checked",
	"internal/member/raftnode/logger.go:log":        "begins with raft:",
	"internal/member/raftnode/logger.go:logf":       "begins with raft:",
	"internal/member/discovery/registry.go:addPeer": "errors of this package",
}

// printed are the packages of the server that may write to other places than the log.
var printed = map[string]string{
	"cmd/vigil": "the command line, before there is a log",
}

func TestLogCalls(t *testing.T) {
	const root = "../.."
	sites := 0
	walk := func(abs string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, abs)
		if err != nil {
			return err
		}
		path := filepath.ToSlash(rel)
		if d.IsDir() {
			if !ofMember(path) || path != "." && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, abs, nil, 0)
		if err != nil {
			return err
		}
		for _, imp := range file.Imports {
			if p, _ := strconv.Unquote(imp.Path.Value); p == "log" && printed[dir] == "" {
				t.Errorf("%s imports log: its lines are not bounded", path)
			}
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				var b strings.Builder
				_ = printer.Fprint(&b, fset, sel.X)
				receiver := b.String()
				if receiver == "os" && (sel.Sel.Name == "Stderr" || sel.Sel.Name == "Stdout") &&
					printed[dir] == "" {
					t.Errorf("%s: writes to %s past the log",
						fset.Position(call.Pos()), sel.Sel.Name)
				}
				at, ok := logMethods[sel.Sel.Name]
				if sel.Sel.Name == "line" && strings.HasSuffix(receiver, "log") {
					at, ok = 3, true // of peer
				}
				if !ok || len(call.Args) <= at || !isLogger.MatchString(receiver) &&
					receiver != "to" && receiver != "l.l" {
					return true
				}
				sites++
				if !beginsConstant(call.Args[at]) && wrappers[path+":"+fn.Name.Name] == "" {
					b.Reset()
					_ = printer.Fprint(&b, fset, call.Args[at])
					t.Errorf("%s: the message %s begins with no words of the code",
						fset.Position(call.Pos()), b.String())
				}
				return true
			})
		}
		return nil
	}
	if err := filepath.WalkDir(root, walk); err != nil {
		t.Fatal(err)
	}
	if sites < 100 {
		t.Errorf("only %d places that log were found: the test does not see them", sites)
	}
}

// ofMember reports whether a package is part of a member: clients and tools print their own output.
func ofMember(dir string) bool {
	for _, p := range []string{"client", "cmd/vigilctl", "examples", "test",
		"internal/offline/restore", "scripts", "internal/archtest", "server/servertest"} {
		if dir == p || strings.HasPrefix(dir, p+"/") {
			return false
		}
	}
	return true
}

// beginsConstant reports whether a message is a constant text or begins with one.
func beginsConstant(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return beginsConstant(e.X)
	case *ast.Ident: // a constant of the package; variables of that kind begin with a lower case letter and are arguments
		return e.Obj != nil && e.Obj.Kind == ast.Con
	case *ast.CallExpr:
		sel, ok := e.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Sprintf" && len(e.Args) > 0 && beginsConstant(e.Args[0])
	}
	return false
}
