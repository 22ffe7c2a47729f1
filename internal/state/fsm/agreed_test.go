package fsm

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"vigil/internal/store/mvcc"
)

// applied are the folders of the packages that decide what a request does when it is applied, and how that is encoded. The index of the
// store and its memory (mvcc/keytree, slab, pagecount) are not among them, nor are logins (auth/password): they decide no outcome.
var applied = []string{
	"internal/state", "internal/kv", "internal/store/mvcc", "internal/store/mvcc/index", "internal/store/mvcc/meter",
	"internal/store/mvcc/record", "internal/store/history/format",
}

// root is the folder of the module.
const root = "../../.."

// constants type-checks packages of this module only for their constants. Of other packages it knows the constants of math and time.
type constants struct {
	files *token.FileSet
	std   types.Importer
	known map[string]*types.Package
}

// Import implements types.Importer.
func (c *constants) Import(name string) (*types.Package, error) {
	if name == "math" || name == "time" {
		return c.std.Import(name)
	}
	if pkg := c.known[name]; pkg != nil {
		return pkg, nil
	}
	pkg := types.NewPackage(name, path.Base(name))
	if dir, ours := strings.CutPrefix(name, "vigil/"); ours {
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, err
		}
		var files []*ast.File
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(c.files, name, nil, 0)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
		check := types.Config{Importer: c, IgnoreFuncBodies: true, Error: func(error) {}} // what is not a constant may be unknown
		pkg, _ = check.Check(name, c.files, files, nil)
	}
	pkg.MarkComplete()
	c.known[name] = pkg
	return pkg, nil
}

// declared returns the numeric constants of the applied packages by their names, with their values.
func declared(t *testing.T) map[string]string {
	files := token.NewFileSet()
	c := &constants{files: files, std: importer.ForCompiler(files, "gc", nil), known: map[string]*types.Package{}}
	found := map[string]string{}
	for _, dir := range applied {
		err := filepath.WalkDir(filepath.Join(root, dir), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			if sources, _ := filepath.Glob(filepath.Join(p, "*.go")); d.Name() == "testdata" || d.Name() == "password" || len(sources) == 0 || dir != "internal/state" && rel != filepath.FromSlash(dir) {
				return nil
			}
			pkg, err := c.Import("vigil/" + filepath.ToSlash(rel))
			if err != nil {
				return err
			}
			for _, name := range pkg.Scope().Names() {
				o, ok := pkg.Scope().Lookup(name).(*types.Const)
				if ok && o.Val().Kind() != constant.String && o.Val().Kind() != constant.Bool && name != "_" {
					found[strings.TrimPrefix(pkg.Path(), "vigil/internal/")+"."+name] = o.Val().ExactString()
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// TestAgreedNumbers: testdata/agreed.txt lists every numeric constant of the packages that apply requests. A number that decides an
// outcome, or how it is encoded, has the level since which members agree on it, and must not change: during an upgrade members of two
// versions apply the same entries. All others are marked with "-".
func TestAgreedNumbers(t *testing.T) {
	const file = "testdata/agreed.txt"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := declared(t)
	if found["state/fsm.Level"] != strconv.FormatUint(Level, 10) || found["store/mvcc/meter.MaxVisitedKeys"] == "" || len(found) < 200 {
		t.Fatalf("only %d constants were found", len(found))
	}
	listed := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		level, err := strconv.ParseUint(fields[0], 10, 64)
		agreed := fields[0] != "-"
		if len(fields) != 2 && !agreed || len(fields) != 3 && agreed || agreed && (err != nil || level == 0 || level > Level) {
			t.Errorf("%s:%d: %q, want a level up to %d, a name and a value, or - and a name", file, i+1, line, Level)
			continue
		}
		name := fields[1]
		value, exists := found[name]
		switch {
		case listed[name]:
			t.Errorf("%s:%d: %s is listed twice", file, i+1, name)
		case !exists:
			t.Errorf("%s:%d: there is no constant %s", file, i+1, name)
		case agreed && value != fields[2]:
			t.Errorf("%s:%d: %s is %s, and members of level %d have %s. Members of both would apply the same request differently: "+
				"keep the value for clusters below a new level, and list a new constant with that level", file, i+1, name, value, level, fields[2])
		}
		listed[name] = true
	}
	for name, value := range found {
		if !listed[name] {
			t.Errorf("%s does not list %s = %s: give it the level since which members agree on it, or - if it decides no outcome", file, name, value)
		}
	}
	// The limits that programs use are the constants.
	want := mvcc.Limits{
		RecordBytes: mvcc.MaxRecordBytes, ChangeBytes: mvcc.MaxChangeBytes, ResultBytes: mvcc.MaxResultBytes, VisitedKeys: mvcc.MaxVisitedKeys,
	}
	if got := (mvcc.Limits{}).WithDefaults(); got != want {
		t.Errorf("the limits by default are %+v, want %+v", got, want)
	}
	if firstVersions.Cluster.Major != 3 || firstVersions.Cluster.Minor != 7 || cmp.Or(firstVersions.Target.Major, firstVersions.Target.Minor) != 0 {
		t.Errorf("a cluster begins with the versions %v, want 3.7", firstVersions)
	}
}
