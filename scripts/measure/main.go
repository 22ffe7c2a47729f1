// Command measure counts what makes the code and its text large or hard to follow, as one table, so
// that a change that claims to make them smaller can be compared with what was there before:
//
//	go run ./scripts/measure
//
// Types are those of the root module without tests. The other counts are of all files in git.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if err := measure(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func measure(out io.Writer) error {
	root, err := run(".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	dir := strings.TrimSpace(string(root))
	if err := countFiles(out, dir); err != nil {
		return err
	}
	packages, err := load(dir)
	if err != nil {
		return err
	}
	countArrows(out, packages)
	countMethods(out, packages)
	countUpward(out, packages)
	return nil
}

// run returns the output of a program.
func run(dir, name string, args ...string) ([]byte, error) {
	c := exec.Command(name, args...)
	c.Dir = dir
	b, err := c.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(exit.Stderr))
	}
	return b, err
}

// parts are the parts of the tree whose lines are counted, by the beginning of the path. The first
// one that fits counts.
var parts = []string{
	"internal/member", "internal/store", "internal/state", "internal/edge", "internal/offline",
	"internal", "server", "client", "cmd/vigilctl",
	"cmd/vigil", "test", "sim", "tools", "bucket", "",
}

// product are the parts that users run.
var product = []string{"internal/", "server/", "client/", "cmd/", "bucket/"}

// phrases are translated syntax, which makes a reader stop.
var phrases = []*regexp.Regexp{
	regexp.MustCompile(`\ban own\b`), regexp.MustCompile(`\bis no [a-z]`),
	regexp.MustCompile(`\blike with\b`), regexp.MustCompile(`\bwhat (?:is|was|has)\b`),
	regexp.MustCompile(`\b(?:those|that) of\b`), regexp.MustCompile(`\banew\b`),
	regexp.MustCompile(`\bin place of\b`), regexp.MustCompile(`\bmeanwhile\b`),
}

const widest = 100 // columns

func countFiles(out io.Writer, dir string) error {
	list, err := run(dir, "git", "ls-files", "-z")
	if err != nil {
		return err
	}
	lines, tests, packages := map[string]int{}, 0, map[string]bool{}
	var modules, words, documents, wide, productLines int
	found := make([]int, len(phrases))
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		ext := path.Ext(name)
		if path.Base(name) == "go.mod" {
			modules++
		}
		if ext != ".go" && ext != ".md" || strings.Contains(name, "third_party/") ||
			strings.Contains(name, "testdata/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return err
		}
		for i, p := range phrases {
			found[i] += len(p.FindAll(text, -1))
		}
		if ext == ".md" {
			words += len(bytes.Fields(text))
			if strings.HasPrefix(name, "docs/") {
				documents += len(bytes.Fields(text))
			}
			continue
		}
		packages[path.Dir(name)] = true
		for line := range bytes.Lines(text) {
			if len([]rune(strings.ReplaceAll(string(line), "\t", "    "))) > widest+1 {
				wide++
			}
		}
		n := bytes.Count(text, []byte("\n"))
		if strings.HasSuffix(name, "_test.go") {
			tests += n
			continue
		}
		lines[parts[slices.IndexFunc(parts,
			func(p string) bool { return p == "" || strings.HasPrefix(name, p+"/") })]] += n
		if slices.ContainsFunc(product, func(p string) bool { return strings.HasPrefix(name, p) }) {
			productLines += n
		}
	}
	fmt.Fprintf(out, "%8d modules\n%8d packages\n%8d lines of Go that users run, without tests\n%8d lines of tests\n%8d lines of Go wider than %d columns\n%8d words of Markdown\n%8d of these in docs\n",
		modules, len(packages), productLines, tests, wide, widest, words,
		documents)
	fmt.Fprintln(out, "\nlines of Go without tests")
	for _, p := range parts {
		fmt.Fprintf(out, "%8d %s\n", lines[p], cmp.Or(p, "everything else"))
	}
	fmt.Fprintln(out, "\nphrases in Go and Markdown")
	for i, p := range phrases {
		fmt.Fprintf(out, "%8d %s\n", found[i], p)
	}
	return nil
}

// source is a package of the root module with its types.
type source struct {
	*types.Package
	files []*ast.File
	fset  *token.FileSet
	info  *types.Info
}

// load checks the types of all packages of the root module.
func load(dir string) ([]source, error) {
	list, err := run(dir, "go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,CgoFiles,Module", "./...")
	if err != nil {
		return nil, err
	}
	type listed struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
		Module                  *struct{ Main bool }
	}
	exports := map[string]string{}
	var own []listed
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Main {
			own = append(own, p)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc",
		func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) })
	var out []source
	for _, p := range own {
		s := source{fset: fset,
			info: &types.Info{Defs: map[*ast.Ident]types.Object{},
				Uses: map[*ast.Ident]types.Object{}}}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil,
				parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			s.files = append(s.files, f)
		}
		if s.Package, err = (&types.Config{Importer: imports}).Check(p.ImportPath, fset, s.files,
			s.info); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// countArrows counts the uses of names of one file in another file of its package. Between two
// files, the direction with fewer uses runs back up.
func countArrows(out io.Writer, packages []source) {
	type arrow struct{ from, to string }
	type result struct {
		name     string
		back, of int
	}
	var results []result
	var back, all int
	for _, p := range packages {
		uses := map[arrow]int{}
		for id, o := range p.info.Uses {
			if o.Pkg() != p.Package || !o.Pos().IsValid() {
				continue
			}
			if a := (arrow{p.fset.File(id.Pos()).Name(),
				p.fset.File(o.Pos()).Name()}); a.from != a.to {
				uses[a]++
			}
		}
		r := result{name: p.Path()}
		for a, n := range uses {
			r.of += n
			if m := uses[arrow{a.to, a.from}]; m < n || m == n && a.from < a.to {
				r.back += m
			}
		}
		back, all = back+r.back, all+r.of
		results = append(results, r)
	}
	slices.SortFunc(results, func(a, b result) int { return b.back - a.back })
	fmt.Fprintf(out, "\nuses between files of a package that run back up: %.1f %% of %d\n",
		100*float64(back)/float64(max(1, all)), all)
	for _, r := range results[:min(10, len(results))] {
		fmt.Fprintf(out, "%8d of %-6d %s\n", r.back, r.of, r.name)
	}
}

// named calls f for each type that a package declares.
func named(packages []source, f func(*types.Named)) {
	for _, p := range packages {
		for _, name := range p.Scope().Names() {
			o, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok || o.IsAlias() {
				continue
			}
			if n, ok := o.Type().(*types.Named); ok {
				f(n)
			}
		}
	}
}

func typeName(n *types.Named) string { return n.Obj().Pkg().Path() + "." + n.Obj().Name() }

// countMethods lists the largest method sets, and the names that many receivers share.
func countMethods(out io.Writer, packages []source) {
	type set struct {
		name string
		n    int
	}
	var sets []set
	receivers := map[string]int{}
	named(packages, func(n *types.Named) {
		if types.IsInterface(n) {
			return
		}
		sets = append(sets, set{typeName(n), types.NewMethodSet(types.NewPointer(n)).Len()})
		for m := range n.Methods() {
			receivers[m.Name()]++
		}
	})
	slices.SortFunc(sets, func(a, b set) int { return b.n - a.n })
	fmt.Fprintln(out, "\nlargest method sets, with promoted methods")
	for _, s := range sets[:min(12, len(sets))] {
		fmt.Fprintf(out, "%8d %s\n", s.n, s.name)
	}
	names := slices.DeleteFunc(slices.Collect(maps.Keys(receivers)),
		func(name string) bool { return receivers[name] <= 10 })
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(receivers[b]-receivers[a], cmp.Compare(a, b))
	})
	fmt.Fprintf(out, "\n%d names of methods are shared by more than ten receivers\n", len(names))
	for _, name := range names {
		fmt.Fprintf(out, "%8d %s\n", receivers[name], name)
	}
}

// countUpward lists types that point to a struct that holds them.
func countUpward(out io.Writer, packages []source) {
	holds := map[*types.Named]map[*types.Named]bool{}
	points := map[*types.Named][]*types.Named{}
	named(packages, func(n *types.Named) {
		s, ok := n.Underlying().(*types.Struct)
		if !ok {
			return
		}
		holds[n] = map[*types.Named]bool{}
		for f := range s.Fields() {
			collect(f.Type(), holds[n], 0)
			if p, ok := f.Type().(*types.Pointer); ok {
				if to, ok := p.Elem().(*types.Named); ok {
					points[n] = append(points[n], to)
				}
			}
		}
	})
	var lines []string
	for n, list := range points {
		for _, whole := range list {
			if holds[whole][n] && whole != n {
				lines = append(lines,
					fmt.Sprintf("         %s -> %s", typeName(n), typeName(whole)))
			}
		}
	}
	slices.Sort(lines)
	lines = slices.Compact(lines)
	fmt.Fprintf(out, "\n%d types point to a larger whole\n%s\n", len(lines),
		strings.Join(lines, "\n"))
}

// collect adds the types that a field holds itself, in a list, a map, an inner struct or behind a
// pointer.
func collect(t types.Type, into map[*types.Named]bool, depth int) {
	if depth > 5 {
		return
	}
	switch t := t.(type) {
	case *types.Named:
		into[t.Origin()] = true
		for a := range t.TypeArgs().Types() {
			collect(a, into, depth+1)
		}
	case *types.Pointer:
		collect(t.Elem(), into, depth+1)
	case *types.Slice:
		collect(t.Elem(), into, depth+1)
	case *types.Array:
		collect(t.Elem(), into, depth+1)
	case *types.Chan:
		collect(t.Elem(), into, depth+1)
	case *types.Map:
		collect(t.Key(), into, depth+1)
		collect(t.Elem(), into, depth+1)
	case *types.Struct:
		for f := range t.Fields() {
			collect(f.Type(), into, depth+1)
		}
	}
}
