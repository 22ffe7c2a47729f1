package vigilctl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigil/test/proc"
)

// TestWatchGoesOn kills the member of a watch again and again, with authentication on, so that the
// watch has to prove who it is anew each time: each event must be printed once and in order.
func TestWatchGoesOn(t *testing.T) {
	const rounds, each = 3, 20
	s := proc.Start(t, proc.Config{Memory: true, Args: []string{"--bcrypt-cost=4"}})
	ctl := proc.Path(t, proc.Vigilctl)
	run := func(args ...string) {
		t.Helper()
		r := proc.Run(t, untilTimeout,
			proc.Spec{Name: ctl, Args: args, Env: []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}})
		if r.Code != 0 {
			t.Fatalf("%q: %d %s", args, r.Code, r.Stderr)
		}
	}
	run("user", "add", "root:pw")
	run("auth", "enable")
	var out proc.Log
	watch := exec.Command(ctl, "watch", "--prefix", "w/", "--rev=1", "--user=root:pw",
		"--endpoints="+s.Addr())
	watch.Stdout = &out
	watch.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for round := range rounds {
		for i := range each {
			key := fmt.Sprintf("w/%d/%d", round, i)
			r := proc.Run(t, untilTimeout,
				proc.Spec{Name: ctl,
					Args: []string{"put", key, "x", "--user=root:pw", "--endpoints=" + s.Addr()}})
			if r.Code != 0 {
				t.Fatal(r.Stderr)
			}
			fmt.Fprintf(&want, "PUT\n%s\nx\n", key)
			if i == each/2 {
				s.Kill()
				s.Restart()
			}
		}
	}
	select {
	case <-out.Lines(3 * rounds * each):
	case <-time.After(untilTimeout):
		t.Errorf("not all events are printed in %s", untilTimeout)
	}
	if err := watch.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = watch.Wait() // the exit code is looked at
	if code := watch.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit code %d", code)
	}
	if out.String() != want.String() {
		t.Errorf("printed:\n%s", out.String())
	}
}

// TestWatchOfRolledBackStore: a watch ends with an error if its member comes back with an older
// copy of its data, instead of waiting in silence for revisions that have been once.
func TestWatchOfRolledBackStore(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	ctl := proc.Path(t, proc.Vigilctl)
	put := func(n int) {
		t.Helper()
		for i := range n {
			r := proc.Run(t, untilTimeout,
				proc.Spec{Name: ctl,
					Args: []string{"put", fmt.Sprintf("w/%d", i), "x", "--endpoints=" + s.Addr()}})
			if r.Code != 0 {
				t.Fatal(r.Stderr)
			}
		}
	}
	put(3)
	s.Stop()
	old := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(old, os.DirFS(s.DataDir())); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	var out, errOut proc.Log
	watch := exec.Command(ctl, "watch", "--prefix", "w/", "--rev=1", "--endpoints="+s.Addr())
	watch.Stdout, watch.Stderr = &out, &errOut
	watch.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	put(4)
	select {
	case <-out.Lines(3 * 7):
	case <-time.After(untilTimeout):
		t.Fatalf("not all events are printed:\n%s%s", out.String(), errOut.String())
	}
	s.Kill()
	if err := errors.Join(os.RemoveAll(s.DataDir()),
		os.CopyFS(s.DataDir(), os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	ended := make(chan error, 1)
	go func() { ended <- watch.Wait() }()
	select {
	case <-ended:
	case <-time.After(untilTimeout):
		_ = watch.Process.Kill()
		t.Fatalf("the watch goes on\n%s", errOut.String())
	}
	if code := watch.ProcessState.ExitCode(); code != 1 ||
		!strings.Contains(errOut.String(), "gone back to an older revision") {
		t.Errorf("exit code %d\n%s", code, errOut.String())
	}
}
