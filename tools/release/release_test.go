package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the lists in testdata anew")

// testVersion is what the tests release. Its last part is another in packages of Debian.
const testVersion = "1.2.3-rc.1"

func TestMain(m *testing.M) {
	if root := os.Getenv("VIGIL_IN_IMAGE"); root != "" {
		os.Exit(inImage(root))
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// built is a release for this machine's architecture, which the tests share.
var built struct {
	once    sync.Once
	release *release
	dir     string // has the programs, and the files of the release in out
	err     error
}

// sharedRelease builds the release once. It includes files that are not committed.
func sharedRelease(t *testing.T) (*release, string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("packages are built and tested on Linux")
	}
	built.once.Do(func() {
		ctx := context.Background()
		src, err := openSource(ctx, ".")
		if err != nil {
			built.err = err
			return
		}
		r := newRelease(src, testVersion, []platform{{"linux", runtime.GOARCH}}, io.Discard)
		if r.paths = testing.Short(); testing.Short() {
			// The libraries of the clouds take minutes to compile. What is packed is then another
			// program under its name.
			r.buckets.module, r.buckets.programs[0].source = ".", "./cmd/vigilctl"
		}
		if built.dir, built.err = os.MkdirTemp("", "vigil-release-"); built.err != nil {
			return
		}
		if built.err = r.prepare(ctx, filepath.Join(built.dir, "parts")); built.err != nil {
			return
		}
		out := filepath.Join(built.dir, "out")
		if built.err = os.Mkdir(out, 0o755); built.err != nil {
			return
		}
		built.release, built.err = r, r.pack(filepath.Join(built.dir, "stage"), out)
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.release, filepath.Join(built.dir, "out")
}

// artifact returns the file of the shared release that is for a product and whose name ends so.
func artifact(t *testing.T, product, ending string) string {
	t.Helper()
	_, out := sharedRelease(t)
	names, err := filepath.Glob(filepath.Join(out, product+"?1.2.3*"+ending))
	if err != nil || len(names) != 1 {
		t.Fatalf("files of %s that end in %s: %v %v", product, ending, names, err)
	}
	return names[0]
}

// inFull skips what `make release-test` tests only: what takes long, or depends on the versions of
// other programs.
func inFull(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("only make release-test tests this")
	}
}

// need skips a test without a program.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("the program %s is missing", program)
	}
}

func runProgram(t *testing.T, program string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", program, args, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -rewrite writes it anew):\n%s", file,
			difference(string(want), got))
	}
}

// difference returns the lines that only one of two texts has.
func difference(want, got string) string {
	count := map[string]int{}
	for _, l := range strings.Split(want, "\n") {
		count[l]--
	}
	for _, l := range strings.Split(got, "\n") {
		count[l]++
	}
	var out strings.Builder
	for _, l := range strings.Split(want+"\n"+got, "\n") {
		if n := count[l]; n < 0 {
			fmt.Fprintf(&out, "missing: %s\n", l)
		} else if n > 0 {
			fmt.Fprintf(&out, "new: %s\n", l)
		}
		delete(count, l)
	}
	if out.Len() == 0 {
		return "the order differs"
	}
	return out.String()
}

// sums returns the hashes of the files of a directory by name.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(b))
	}
	return out
}

// TestSameBytes packs the same programs again, with another umask and time zone, in another
// directory.
func TestSameBytes(t *testing.T) {
	r, out := sharedRelease(t)
	t.Setenv("TZ", "Asia/Tokyo")
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	defer syscall.Umask(syscall.Umask(0o027))
	again := filepath.Join(t.TempDir(), "again")
	if err := os.Mkdir(again, 0o755); err != nil {
		t.Fatal(err)
	}
	second := *r
	if err := second.pack(filepath.Join(t.TempDir(), "another stage"), again); err != nil {
		t.Fatal(err)
	}
	compareReleases(t, out, again)
}

// compareReleases reports files of two releases that differ.
func compareReleases(t *testing.T, a, b string) {
	t.Helper()
	first, second := sums(t, a), sums(t, b)
	if len(first) < 11 || len(first) != len(second) {
		t.Errorf("%d and %d files", len(first), len(second))
	}
	for name, sum := range first {
		if second[name] != sum {
			t.Errorf("%s differs between two builds", name)
		}
	}
}

// TestSums: SHA256SUMS has every other file.
func TestSums(t *testing.T) {
	_, out := sharedRelease(t)
	b, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	all := sums(t, out)
	delete(all, "SHA256SUMS")
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		sum, name, _ := strings.Cut(line, "  ")
		if all[name] != sum {
			t.Errorf("%q: %s has %s", line, name, all[name])
		}
		delete(all, name)
	}
	if len(all) > 0 {
		t.Errorf("not in SHA256SUMS: %v", all)
	}
}
