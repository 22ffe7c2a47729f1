package vigilctl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigil/test/proc"
)

// TestLockHangup: who waits for a lock gives its place up when its terminal is closed, and a
// command that runs under nohup goes on.
func TestLockHangup(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Memory: true})
	ctl := proc.Path(t, proc.Vigilctl)
	released := filepath.Join(t.TempDir(), "released") // the holder's command ends when it exists
	begin := func(out *proc.Log, command ...string) *exec.Cmd {
		t.Helper()
		c := exec.Command(command[0], command[1:]...)
		c.Env = append(c.Environ(), "VIGILCTL_ENDPOINTS="+s.Addr(), "CTL="+ctl,
			"RELEASED="+released)
		c.Stdout, c.Stderr = out, out
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill() })
		return c
	}
	places := func() int {
		t.Helper()
		r := proc.Run(t, untilTimeout,
			proc.Spec{Name: ctl,
				Args: []string{"get", "--prefix", "hangup/", "--keys-only",
					"--endpoints=" + s.Addr()}})
		if r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		return strings.Count(r.Stdout, "hangup/")
	}
	hangup := func(c *exec.Cmd, release bool) (code int) {
		t.Helper()
		if err := c.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if release {
			if err := os.WriteFile(released, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		kill := time.AfterFunc(untilTimeout, func() { _ = c.Process.Kill() })
		defer kill.Stop()
		_ = c.Wait() // the exit code is looked at
		return c.ProcessState.ExitCode()
	}
	var held, waits proc.Log
	holder := begin(&held, "sh", "-c",
		`trap '' HUP; exec "$CTL" lock hangup --ttl 60 -- sh -c 'echo begun; while [ ! -e "$0" ]; do sleep 0.05; done; echo done' "$RELEASED"`)
	select {
	case <-held.Lines(1):
	case <-time.After(untilTimeout):
		t.Fatal(held.String())
	}
	waiter := begin(&waits, ctl, "lock", "hangup", "--ttl=60", "true")
	for end := time.Now().Add(untilTimeout); places() < 2; {
		if time.Now().After(end) {
			t.Fatal(waits.String())
		}
	}
	if hangup(waiter, false) == 0 {
		t.Error("the waiter reports success")
	}
	if n := places(); n != 1 {
		t.Errorf("%d places are taken in the queue\n%s", n, waits.String())
	}
	if code := hangup(holder, true); code != 0 || !strings.Contains(held.String(), "done") {
		t.Errorf("the command did not go on, exit code %d:\n%s", code, held.String())
	}
}
