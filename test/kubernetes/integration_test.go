package kubernetes

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vigil/test/proc"
)

// integrationPackages are packages of k8s.io/kubernetes/test/integration, those closest to the
// store first.
var integrationPackages = []string{"etcd", "namespace", "garbagecollector", "client"}

// TestIntegration runs Kubernetes' own integration tests, which start API servers, controllers and
// the first program called etcd in PATH. It takes long, so VIGIL_KUBERNETES_INTEGRATION asks for
// it: the packages to run, or all for those above.
func TestIntegration(t *testing.T) {
	packages := strings.Fields(os.Getenv("VIGIL_KUBERNETES_INTEGRATION"))
	if len(packages) == 0 {
		t.Skip("VIGIL_KUBERNETES_INTEGRATION is not set")
	}
	if packages[0] == "all" {
		packages = integrationPackages
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "path")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(proc.Path(t, proc.Subject()), filepath.Join(path, "etcd")); err != nil {
		t.Fatal(err)
	}
	// The tests look for files from where they lie in Kubernetes' repository, which the modules are
	// taken from.
	api := filepath.Join(dir, "staging", "src", "k8s.io", "api")
	if err := os.MkdirAll(filepath.Dir(api), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(moduleDir(t, "k8s.io/api"), api); err != nil {
		t.Fatal(err)
	}
	// What only these tests need stays out of go.mod.
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	for _, p := range packages {
		t.Run(p, func(t *testing.T) {
			name := "k8s.io/kubernetes/test/integration/" + p
			binary := filepath.Join(dir, p+".test")
			out, err := exec.Command("go", "test", "-c", "-mod=mod",
				"-modfile="+filepath.Join(dir, "go.mod"), "-o", binary, name).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			place := filepath.Join(dir, "test", "integration", p)
			if err := os.CopyFS(place,
				os.DirFS(filepath.Join(moduleDir(t, "k8s.io/kubernetes"), "test", "integration",
					p))); err != nil {
				t.Fatal(err)
			}
			// Modules have no executables.
			scripts, err := filepath.Glob(filepath.Join(place, "testdata", "*plugin.sh"))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range scripts {
				if err := os.Chmod(s, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "go", "tool", "test2json", "-p", name, binary,
				"-test.v=test2json", "-test.timeout=1h")
			cmd.Dir = place
			cmd.Env = append(os.Environ(), "PATH="+path+string(filepath.ListSeparator)+
				os.Getenv("PATH"), "TMPDIR="+proc.Dir(t))
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r := readResults(t, bufio.NewScanner(stdout))[name]
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			t.Logf("%s on %s: %d passed, %d failed, %d skipped", name, proc.Subject(), r.pass,
				r.fail, r.skip)
		})
	}
}

// moduleDir returns where the sources of a module are.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("go list -m %s: %v", module, err)
	}
	return strings.TrimSpace(string(out))
}
