package kubernetes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"vigil/test/proc"

	_ "go.etcd.io/etcd/server/v3/embed"
	// The packages whose tests are run, so that go.mod and go.sum have what those tests need.
	_ "k8s.io/apiextensions-apiserver/pkg/apiserver"
	_ "k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	_ "k8s.io/apiserver/pkg/reconcilers"
	_ "k8s.io/apiserver/pkg/registry/generic/registry"
	_ "k8s.io/apiserver/pkg/storage/cacher"
	_ "k8s.io/apiserver/pkg/storage/etcd3"
	_ "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	_ "k8s.io/apiserver/pkg/util/peerproxy"
	_ "k8s.io/kubernetes/pkg/controlplane/reconcilers"
)

// storagePackages are the packages of Kubernetes whose tests start an etcd.
var storagePackages = []string{
	// The storage tests proper, on the store and on the cache of watches in front of it.
	"k8s.io/apiserver/pkg/storage/etcd3",
	"k8s.io/apiserver/pkg/storage/cacher",
	// Health checks and TLS, API objects over the store, leases of API servers, custom resources.
	"k8s.io/apiserver/pkg/storage/storagebackend/factory",
	"k8s.io/apiserver/pkg/registry/generic/registry",
	"k8s.io/apiserver/pkg/reconcilers",
	"k8s.io/apiserver/pkg/util/peerproxy",
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource",
	"k8s.io/apiextensions-apiserver/pkg/apiserver",
	"k8s.io/kubernetes/pkg/controlplane/reconcilers",
}

// TestStorage runs Kubernetes' own tests of its storage, each with a server of its own; see package
// embed for how the server gets there. They include every exported test of
// k8s.io/apiserver/pkg/storage/testing, over plain ranges and over RangeStream.
func TestStorage(t *testing.T) {
	if _, err := proc.Build(proc.Subject()); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"test", "-json", "-count=1", "-timeout=20m"}, storagePackages...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	// Data directories on a memory file system: no question here is about the disk.
	cmd.Env = append(os.Environ(), "TMPDIR="+proc.Dir(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	results := readResults(t, bufio.NewScanner(out))
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}

	var all result
	t.Logf("%-60s %6s %6s %7s", "on "+string(proc.Subject()), "passed", "failed", "skipped")
	for _, p := range storagePackages {
		r := results[p]
		if r.pass == 0 {
			t.Errorf("no test of %s has passed", p)
		}
		t.Logf("%-60s %6d %6d %7d", p, r.pass, r.fail, r.skip)
		all.pass, all.fail, all.skip = all.pass+r.pass, all.fail+r.fail, all.skip+r.skip
	}
	t.Logf("%-60s %6d %6d %7d", "all", all.pass, all.fail, all.skip)
}

// result counts the tests of one package, subtests too.
type result struct{ pass, fail, skip int }

// readResults reads what go test -json writes, shows what failing tests say, and returns the counts
// by package.
func readResults(t *testing.T, lines *bufio.Scanner) map[string]result {
	t.Helper()
	lines.Buffer(nil, 16<<20)
	results := map[string]result{}
	said := map[string]*strings.Builder{}
	for lines.Scan() {
		var line struct{ Action, Package, Test, ImportPath, Output string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		name := fmt.Sprint(line.Package, line.ImportPath, " ", line.Test)
		r := results[line.Package]
		switch line.Action {
		case "output", "build-output":
			if said[name] == nil {
				said[name] = &strings.Builder{}
			}
			said[name].WriteString(line.Output)
			continue
		case "pass":
			if line.Test != "" {
				r.pass++
			}
		case "skip":
			if line.Test != "" {
				r.skip++
				t.Logf("skipped: %s", name)
			}
		case "fail", "build-fail":
			if line.Test != "" {
				r.fail++
			}
			t.Errorf("failed: %s\n%s", name, said[name])
		default:
			continue
		}
		results[line.Package] = r
		delete(said, name)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return results
}
