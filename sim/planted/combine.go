package planted

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Combine returns the files of one program with many mistakes, of which a process has the one whose
// number, its position in list from 1 on, is the argument of the program. A changed function is
// there twice: the original calls the changed one if the process has that mistake. A mistake that
// changes more than the bodies of functions is not part of the program: rest has it.
func Combine(root string, list []Mistake) (files map[string]string, rest []Mistake, err error) {
	c := combination{files: map[string]string{}, added: map[string]string{}}
	for n, m := range list {
		ok, err := c.add(root, m, n+1)
		if err != nil {
			return nil, nil, err
		}
		if !ok {
			rest = append(rest, m)
		}
	}
	for name, text := range c.added {
		c.files[name] += text
	}
	return c.files, rest, nil
}

// combination is a program with several mistakes. added are the functions at the end of files.
type combination struct{ files, added map[string]string }

// function is a function of a file: its declaration, the place of its text and that of its body.
type function struct {
	decl           *ast.FuncDecl
	from, to, body int
}

// functions returns the functions of a file by receiver and name, and the text between them.
func functions(code string) (all map[string]function, between string, pkg string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", code, parser.SkipObjectResolution)
	if err != nil {
		return nil, "", "", err
	}
	all = map[string]function{}
	last := 0
	for _, d := range f.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || d.Body == nil {
			continue
		}
		at := func(p token.Pos) int { return fset.Position(p).Offset }
		key := d.Name.Name
		if d.Recv != nil {
			r := d.Recv.List[0].Type
			key = code[at(r.Pos()):at(r.End())] + "." + key
		}
		fn := function{d, at(d.Pos()), at(d.End()), at(d.Body.Lbrace)}
		all[key] = fn
		between += code[last:fn.from]
		last = fn.to
	}
	return all, between + code[last:], f.Name.Name, nil
}

// add adds a mistake, unless it is not one of function bodies.
func (c *combination) add(root string, m Mistake, number int) (ok bool, err error) {
	changed, err := m.Apply(root)
	if err != nil {
		return false, err
	}
	files, added := map[string]string{}, map[string]string{}
	for name, code := range changed {
		was, err := read(root, name)
		if err != nil {
			return false, err
		}
		before, textBefore, pkg, err := functions(was)
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		after, textAfter, _, err := functions(code)
		if err != nil {
			return false, fmt.Errorf("%s: %s: %w", m.Name, name, err)
		}
		if textBefore != textAfter || len(before) != len(after) {
			return false, nil
		}
		now, ok := c.files[name]
		if !ok {
			now = was
		}
		for key, f := range after {
			text := code[f.from:f.to]
			if old := before[key]; was[old.from:old.to] == text {
				continue
			}
			call, ok := call(f.decl, number)
			if !ok {
				return false, nil
			}
			all, _, _, err := functions(now)
			if err != nil {
				return false, fmt.Errorf("%s: %w", name, err)
			}
			at := all[key].body + 1
			now = now[:at] + call + now[at:]
			// The name follows the word func and the receiver.
			skip := int(f.decl.Name.Pos()-f.decl.Pos()) + len(f.decl.Name.Name)
			added[name] += fmt.Sprintf("\n%s%s%s\n", text[:skip], suffix(number), text[skip:])
		}
		files[name] = now
		files[path.Join(filepath.ToSlash(filepath.Dir(name)),
			"planted_number.go")] = fmt.Sprintf(numberCode, pkg)
	}
	for name, text := range files {
		c.files[name] = text
	}
	for name, text := range added {
		c.added[name] += text
	}
	return true, nil
}

// numberCode is a file of a package with mistakes: it reads which of them the process has.
const numberCode = `package %s

import "os"

var plantedNumber = func() (n int) {
	if len(os.Args) > 1 {
		for _, c := range os.Args[1] {
			n = 10*n + int(c-'0')
		}
	}
	return n
}()
`

func suffix(number int) string { return fmt.Sprintf("__%d", number) }

// call returns the statement that calls the changed function in its place; ok is false if an
// argument has no name.
func call(d *ast.FuncDecl, number int) (code string, ok bool) {
	var args []string
	for _, p := range d.Type.Params.List {
		if len(p.Names) == 0 {
			return "", false
		}
		for _, n := range p.Names {
			args = append(args, n.Name)
		}
		if _, variadic := p.Type.(*ast.Ellipsis); variadic {
			args[len(args)-1] += "..."
		}
	}
	name := d.Name.Name + suffix(number)
	if d.Recv != nil {
		if len(d.Recv.List[0].Names) == 0 {
			return "", false
		}
		name = d.Recv.List[0].Names[0].Name + "." + name
	}
	if slices.Contains(args, "_") || strings.HasPrefix(name, "_.") {
		return "", false
	}
	text := name + "(" + strings.Join(args, ", ") + ")"
	if d.Type.Results != nil {
		return fmt.Sprintf("\n\tif plantedNumber == %d {\n\t\treturn %s\n\t}\n", number, text), true
	}
	return fmt.Sprintf("\n\tif plantedNumber == %d {\n\t\t%s\n\t\treturn\n\t}\n",
		number, text), true
}
