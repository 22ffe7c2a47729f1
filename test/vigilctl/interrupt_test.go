package vigilctl

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// TestInterrupted interrupts commands while their member does not answer: the exit code is 5, in a
// moment, whatever the timeouts are.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	dir := t.TempDir()
	s.Pause()
	defer s.Resume()
	for _, line := range []string{
		"get k", "put k v", "del k", "compaction 1", "watch k", "lease grant 60",
		"lease timetolive 1", "lease list", "lease keep-alive 1", "member list", "member remove 1",
		"endpoint status", "endpoint health", "endpoint hashkv", "alarm list", "defrag",
		"move-leader 1", "downgrade validate 3.6", "snapshot save " + dir + "/b.db",
		"lock l", "elect e me", "auth status", "user list", "role list", "history k",
		"diff k --from 1", "tree", "ls", "watchers", "top --once", "doctor",
		"dump " + dir + "/d.jsonl", "dump -", "make-mirror 127.0.0.1:1", "check perf",
	} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			var errs proc.Log
			c := exec.Command(proc.Path(t, proc.Vigilctl),
				append(strings.Fields(line), "--debug", "--dial-timeout=1h", "--command-timeout=1h",
					"--endpoints="+s.Addr())...)
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
				t.Errorf("%s, %v: %d\n%s", line, sig, code,
					text[strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1:])
			}
		}
	}
	if left, err := filepath.Glob(dir + "/*"); err != nil || len(left) > 0 {
		t.Errorf("they left %q, %v", left, err)
	}
}

// TestInterruptedHolder interrupts a lock that is held, one that is waited for and a leadership
// while the member does not answer: the program ends after the time of a short command, not after
// that of the lease.
func TestInterruptedHolder(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	var list []*exec.Cmd
	for _, line := range []string{"lock held --ttl=3600", "lock held --ttl=3600", "elect led me",
		"lock child --ttl=3600 -- sh -c"} {
		args := strings.Fields(line)
		if args[len(args)-1] == "-c" {
			args = append(args, "trap 'exit 0' TERM; echo begun; while :; do sleep 0.05; done")
		}
		var out proc.Log
		c := exec.Command(proc.Path(t, proc.Vigilctl),
			append([]string{"--dial-timeout=1s", "--command-timeout=1s",
				"--endpoints=" + s.Addr()}, args...)...)
		c.Stdout, c.SysProcAttr = &out, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if list = append(list, c); len(list) == 2 { // it waits, and prints nothing
			ctx, client := proc.Context(t), s.Client()
			for end := time.Now().Add(untilTimeout); ; {
				r, err := client.Get(ctx, "held/", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if err != nil {
					t.Fatal(err)
				}
				if r.Count == 2 {
					break
				}
				if time.Now().After(end) {
					t.Fatal("the second lock is not waited for")
				}
			}
			continue
		}
		select {
		case <-out.Lines(1):
		case <-time.After(untilTimeout):
			t.Fatalf("%s prints nothing", line)
		}
	}
	s.Pause()
	defer s.Resume()
	for _, c := range list {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range list {
		kill := time.AfterFunc(untilTimeout, func() { _ = c.Process.Kill() })
		_ = c.Wait() // the exit code is looked at
		kill.Stop()
		if code := c.ProcessState.ExitCode(); code != 5 {
			t.Errorf("%q: %d", c.Args, code)
		}
	}
}
