package vigilctl

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigil/test/proc"
)

// TestInterrupted interrupts commands while their member does not answer: the exit code is 5, in a moment, whatever the timeouts are.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	dir := t.TempDir()
	s.Pause()
	defer s.Resume()
	for _, line := range []string{
		"get k", "put k v", "del k", "compaction 1", "watch k", "lease grant 60", "lease timetolive 1", "lease list", "lease keep-alive 1", "member list", "member remove 1",
		"endpoint status", "endpoint health", "endpoint hashkv", "alarm list", "defrag", "move-leader 1", "downgrade validate 3.6", "snapshot save " + dir + "/b.db",
		"lock l", "elect e me", "auth status", "user list", "role list", "history k", "diff k --from 1", "tree", "watchers", "top --once", "doctor",
		"dump " + dir + "/d.jsonl", "dump -", "make-mirror 127.0.0.1:1", "check perf",
	} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			var errs proc.Log
			c := exec.Command(proc.Path(t, proc.Vigilctl), append(strings.Fields(line), "--debug", "--dial-timeout=1h", "--command-timeout=1h", "--endpoints="+s.Addr())...)
			c.Dir, c.Stderr = dir, &errs
			c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			kill := time.AfterFunc(untilTimeout, func() { _ = c.Process.Kill() })
			select {
			case <-errs.Lines(1): // signals have a handler by now
			case <-time.After(untilTimeout):
				t.Fatalf("%s: nothing is printed", line)
			}
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait() // the exit code is looked at
			kill.Stop()
			if code := c.ProcessState.ExitCode(); code != 5 {
				text := errs.String()
				t.Errorf("%s, %v: %d\n%s", line, sig, code, text[strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1:])
			}
		}
	}
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("they left %q, %v", left, err)
	}
}
