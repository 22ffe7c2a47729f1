package modules

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vigil/test/proc"
)

// root returns the directory of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// TestOutsideModule follows docs/client/module.md: each of its ways to find the client builds its
// program, which then writes and reads a key.
func TestOutsideModule(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "client", "module.md"))
	if err != nil {
		t.Fatal(err)
	}
	var program string
	var ways []string
	for _, b := range block.FindAllStringSubmatch(string(page), -1) {
		switch b[1] {
		case "go":
			program = b[2]
		case "sh": // the third is the command that path_test.go runs
			if strings.Contains(b[2], "go build") {
				ways = append(ways, b[2])
			}
		}
	}
	if program == "" || len(ways) != 2 {
		t.Fatalf("found %d bytes of program and %d ways to build it, want a program and 2",
			len(program), len(ways))
	}
	server := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	for _, way := range ways {
		name, _, _ := strings.Cut(way, "\n")
		t.Run(name, func(t *testing.T) {
			above := t.TempDir()
			if err := os.Symlink(root(t), filepath.Join(above, "vigil")); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(above, "greet")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program),
				0o644); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOWORK", "") // ./check switches workspaces off
			run(t, dir, "go", "mod", "init", "example.org/greet")
			run(t, dir, "sh", "-ec", way)
			if out := run(t, dir, "./greet", server.Addr()); out != "hello\n" {
				t.Errorf("the program printed %q, want hello", out)
			}
		})
	}
}
