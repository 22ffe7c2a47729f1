package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Program is one of the programs that the tests run.
type Program string

// The programs. Those of Vigil are built from the module that this one is nested in, the others
// from the stock modules.
const (
	Vigil    Program = "vigil"
	Vigilctl Program = "vigilctl"
	Follow   Program = "follow" // an example
	Previous Program = "vigil-previous"
	Next     Program = "vigil-next" // see versions.go
	Etcd     Program = "etcd"
	Etcdctl  Program = "etcdctl"
	Etcdutl  Program = "etcdutl"
)

// stock are the packages of stock programs that can be built as they are.
var stock = map[Program]string{Etcdutl: "go.etcd.io/etcd/etcdutl/v3"}

// ours are the packages of Vigil's programs.
var ours = map[Program]string{Vigil: "./cmd/vigil", Vigilctl: "./cmd/vigilctl",
	Follow: "./examples/follow"}

// Subject is the server under test: Vigil, or the program in VIGIL_SUBJECT. With
// VIGIL_SUBJECT=etcd the tests run against the stock server, which verifies their expectations.
func Subject() Program {
	if s := os.Getenv("VIGIL_SUBJECT"); s != "" {
		return Program(s)
	}
	return Vigil
}

type build struct {
	once sync.Once
	path string
	err  error
}

// builds remembers, for this process, what has been built. go build does not rebuild an output
// that is up to date, so the processes of one test run share the work through the directory.
var builds = map[Program]*build{Vigil: {}, Vigilctl: {}, Follow: {}, Previous: {}, Next: {},
	Etcd: {}, Etcdctl: {}, Etcdutl: {}}

// Path returns the executable of a program, building it if it is missing or out of date. With
// VIGIL_RACE=1 Vigil's are built with the race detector; with VIGIL_BINARY that executable is used
// instead of a build, and with VIGIL_BUILT=1 the programs in test/bin are taken as they are:
// test/cmd/programs has built them.
func Path(t testing.TB, p Program) string {
	t.Helper()
	path, err := Build(p)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Build is Path without a test.
func Build(p Program) (string, error) {
	b, ok := builds[p]
	if !ok {
		return "", fmt.Errorf("no program is called %q", p)
	}
	if given := os.Getenv("VIGIL_BINARY"); p == Vigil && given != "" {
		return given, nil
	}
	b.once.Do(func() {
		if os.Getenv("VIGIL_BUILT") != "" && os.Getenv("VIGIL_RACE") == "" && sources() != "" {
			b.path = filepath.Join(sources(), "test", "bin", string(p))
		} else {
			b.path, b.err = compile(p)
		}
		if b.err == nil {
			_, b.err = os.Stat(b.path) // so that go test knows that the result depends on it
		}
	})
	return b.path, b.err
}

// sources returns the directory of the module that this one is nested in, "" if it is not known.
func sources() string {
	// The place of this file gives that of the module, whatever module and directory the caller is
	// in.
	_, file, _, _ := runtime.Caller(0)
	if !filepath.IsAbs(file) {
		return ""
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

func compile(p Program) (string, error) {
	if sources() == "" {
		return "", errors.New("the place of the sources is not known; build without -trimpath")
	}
	root := filepath.Join(sources(), "test")
	dir := filepath.Join(root, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// One build at a time, also between the test processes that go test runs side by side.
	lock, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}

	name := filepath.Join(dir, string(p))
	args := []string{"build"}
	from, own := ours[p]
	switch {
	case p == Previous || p == Next:
		var done func()
		if args, done, err = otherVersion(p, filepath.Dir(root), dir); err != nil {
			return "", err
		}
		defer done()
		from = ours[Vigil]
	case own:
		args = append(args, "-C", filepath.Dir(root))
		if os.Getenv("VIGIL_RACE") != "" {
			name += "-race"
			args = append(args, "-race")
		}
	default:
		if from, own = stock[p]; !own {
			from = "./cmd/" + string(p)
		}
		args = append(args, "-C", root)
	}
	args = append(args, "-buildvcs=false", "-o", name, from)
	var stderr bytes.Buffer
	cmd := exec.Command("go", args...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return name, nil
}
