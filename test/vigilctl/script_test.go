package vigilctl

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"vigil/test/proc"
)

// untilTimeout bounds the waiting for a condition; nothing waits so long unless something is wrong.
const untilTimeout = time.Minute

// TestMain gives signals that this process ignores a handler: the programs would inherit that they
// are ignored, which they are under nohup and in the background of a script. A signal with a
// handler has its default meaning for them.
func TestMain(m *testing.M) {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGPIPE} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}

func TestScripts(t *testing.T) {
	for _, pair := range []struct {
		program, server proc.Program
		dirs            []string
	}{
		{proc.Vigilctl, proc.Vigil, []string{"testdata", "testdata/own"}},
		{proc.Vigilctl, proc.Etcd, []string{"testdata", "testdata/own"}},
		{proc.Etcdctl, proc.Etcd, []string{"testdata"}},
	} {
		t.Run(string(pair.program)+" to "+string(pair.server), func(t *testing.T) {
			t.Parallel()
			bin := t.TempDir()
			if err := os.Symlink(proc.Path(t, pair.program),
				filepath.Join(bin, "ctl")); err != nil {
				t.Fatal(err)
			}
			for _, dir := range pair.dirs {
				files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
				if err != nil || len(files) == 0 {
					t.Fatalf("no scripts in %s: %v", dir, err)
				}
				for _, file := range files {
					t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"),
						func(t *testing.T) { script(t, file, bin, pair.server) })
				}
			}
		})
	}
}

// script runs one script with a server of its own.
func script(t *testing.T, file, bin string, server proc.Program) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: server, Memory: true})
	testscript.Run(t, testscript.Params{
		Files: []string{file},
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
			env.Setenv("ETCDCTL_ENDPOINTS", s.Addr())
			env.Setenv("ENDPOINT", s.Addr())
			return nil
		},
		Condition: func(name string) (bool, error) { return name == string(server), nil },
		Cmds: map[string]func(ts *testscript.TestScript, neg bool,
			args []string){"until": until},
	})
}

// until runs a program until its output matches.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM ARGUMENTS...")
	}
	want, err := regexp.Compile(args[0])
	ts.Check(err)
	path, err := exec.LookPath(args[1])
	if args[1] == "ctl" {
		path, err = filepath.Join(filepath.SplitList(ts.Getenv("PATH"))[0], "ctl"), nil
	}
	ts.Check(err)
	for end := time.Now().Add(untilTimeout); ; time.Sleep(10 * time.Millisecond) {
		cmd := exec.Command(path, args[2:]...)
		cmd.Dir = ts.Getenv("WORK")
		cmd.Env = append(os.Environ(), "ETCDCTL_ENDPOINTS="+ts.Getenv("ETCDCTL_ENDPOINTS"))
		out, _ := cmd.CombinedOutput() // the output is compared
		if want.Match(out) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%q does not print %s in %s:\n%s", args[1:], want, untilTimeout, out)
		}
	}
}
