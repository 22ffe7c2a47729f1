package planted

import (
	"go/format"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"testing"

	"vigil/sim/scenario"
)

// TestApply: the mistakes fit the code, and change it.
func TestApply(t *testing.T) {
	for _, m := range All {
		files, err := m.Apply("../..")
		if err != nil {
			t.Error(err)
		}
		for name, code := range files {
			if _, err := format.Source([]byte(code)); err != nil {
				t.Errorf("%s: %s: %v", m.Name, name, err)
			}
		}
		for _, e := range m.Edits {
			if e.Old == e.New {
				t.Errorf("%s: an edit of %s changes nothing", m.Name, e.File)
			}
		}
	}
}

// TestCombine: a program with many mistakes is made of files that can be parsed.
func TestCombine(t *testing.T) {
	files, rest, err := Combine("../..", All)
	if err != nil {
		t.Fatal(err)
	}
	for name, code := range files {
		if _, err := format.Source([]byte(code)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, m := range rest {
		t.Logf("%s needs a program of its own", m.Name)
	}
	if len(rest) > len(All)/3 {
		t.Errorf("%d of %d mistakes need a program of their own", len(rest), len(All))
	}
}

// TestNames: each mistake has a name of its own, a promise and a change.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range All {
		if seen[m.Name] || m.Name == "" || m.Name == "all" || m.Promise == "" || len(m.Edits) == 0 {
			t.Errorf("%+v: the name is empty or taken, or the promise or the change is missing", m)
		}
		seen[m.Name] = true
		if _, err := scenario.ProfilePlan(m.Profile, 1, 0); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

// TestCompile: the programs with mistakes can be compiled. Mistakes that need a program of their
// own share one here if they change different files.
func TestCompile(t *testing.T) {
	files, rest, err := Combine("../..", All)
	if err != nil {
		t.Fatal(err)
	}
	builds := []map[string]string{files}
next:
	for _, m := range rest {
		changed, err := m.Apply("../..")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range builds[1:] {
			if !overlaps(b, changed) {
				maps.Copy(b, changed)
				continue next
			}
		}
		builds = append(builds, changed)
	}
	for _, b := range builds {
		overlay, err := Overlay("../..", t.TempDir(), b)
		if err != nil {
			t.Fatal(err)
		}
		// as the simulation is built
		args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace",
			"-overlay", overlay}
		for file := range b {
			if p := "vigil/" + path.Dir(file); !slices.Contains(args, p) {
				args = append(args, p)
			}
		}
		build := exec.CommandContext(t.Context(), "go", args...)
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", slices.Sorted(maps.Keys(b)), err, out)
		}
	}
	t.Logf("%d builds", len(builds))
}

// overlaps reports whether two sets of files have one in common.
func overlaps(a, b map[string]string) bool {
	for file := range a {
		if _, both := b[file]; both {
			return true
		}
	}
	return false
}
