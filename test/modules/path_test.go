package modules

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// copyTree copies the files of the repository that git knows.
func copyTree(t *testing.T) string {
	t.Helper()
	from, to := root(t), t.TempDir()
	for _, name := range strings.Split(strings.TrimSuffix(run(t, from, "git", "ls-files", "-z"),
		"\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(from, name))
		if err != nil {
			continue // deleted and not yet committed
		}
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// contents returns the text of each file below dir.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestSetModulePath changes the module path of a copy of the repository, which must build
// afterwards.
func TestSetModulePath(t *testing.T) {
	dir := copyTree(t)
	old := strings.Fields(run(t, dir, "head", "-1", "go.mod"))[1]
	const first, second = "example.com/first", "git.example.org/Team/vigil_2"
	left := regexp.MustCompile(`(?m)(^|[\s"` + "`" + `(])` + regexp.QuoteMeta(old) +
		`(/(bucket|client|cmd|console|examples|internal|packaging|server|sim|test|tools)\b)`)

	run(t, dir, "scripts/set-module-path", first)
	once := contents(t, dir)
	for name, text := range once {
		if strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "go.mod") ||
			strings.HasSuffix(name, ".md") {
			if at := left.FindString(text); at != "" {
				t.Errorf("%s still has the old path: %q", name, at)
			}
		}
	}
	run(t, dir, "scripts/set-module-path", first)
	for name, text := range contents(t, dir) {
		if once[name] != text {
			t.Errorf("the second run changed %s", name)
		}
	}

	run(t, dir, "scripts/set-module-path", second)
	run(t, dir, "scripts/set-module-path", first)
	for name, text := range contents(t, dir) {
		if once[name] != text {
			t.Errorf("%s differs after a change to %s and back", name, second)
		}
	}
	if out := run(t, dir, "gofmt", "-l", "."); out != "" {
		t.Errorf("not formatted:\n%s", out)
	}
	for _, module := range []string{".", "client", "sim", "test", "test/proc", "bucket",
		"tools"} {
		if out := run(t, filepath.Join(dir, module), "go", "list",
			"-m"); !strings.HasPrefix(out, first) {
			t.Errorf("the module in %s is %s", module, out)
		}
	}
	finds := []string{"test", "test/proc"}
	if testing.Short() {
		finds = append(finds, ".", "client")
	} else {
		run(t, dir, "go", "build", "./...")
		run(t, filepath.Join(dir, "client"), "go", "vet", "./...")
	}
	for _, module := range finds {
		// finds every import
		run(t, filepath.Join(dir, module), "go", "list", "-deps", "-test", "./...")
	}
	run(t, dir, "go", "test", "./internal/archtest")
}

// TestSetModulePathRejects runs the script with what is no module path: it exits with 2 and changes
// nothing.
func TestSetModulePathRejects(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "scripts"), 0o755); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(root(t), "scripts", "set-module-path"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "scripts", "set-module-path"), script,
		0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module vigil\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	for _, args := range [][]string{
		{}, {""}, {"vigil"}, {"vigil/x"}, {"Example.com/x"}, {"example.com/"}, {"example.com//x"},
		{"example.com/x/"},
		{"example.com/x."}, {"example.com/.x"}, {"example.com/a b"}, {"example.com/x;y"},
		{"example.com/$x"},
		{"https://example.com/x"}, {"-example.com/x"}, {"example..com/x"}, {"example.com/x/v2"},
		{"example.com/x\ny"}, {"example.com/x", "example.com/y"},
	} {
		cmd := exec.Command("scripts/set-module-path", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || len(out) == 0 {
			t.Errorf("set-module-path %q: exit code %d, want 2\n%s", args,
				cmd.ProcessState.ExitCode(), out)
		}
	}
	for name, text := range contents(t, dir) {
		if before[name] != text {
			t.Errorf("%s was changed", name)
		}
	}
}
