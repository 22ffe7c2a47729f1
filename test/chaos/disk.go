package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigil/test/proc"
)

const (
	// diskBytes is the size of a member's file system, where that is one of its own.
	diskBytes = 512 << 20
	// mountSource and the number of the process are the source of its mounts.
	mountSource = "vigil-chaos-"
)

// unmountDead removes the file systems of runs that were killed.
func unmountDead(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		field := strings.Fields(line)
		pid, ours := strings.CutPrefix(field[0], mountSource)
		if !ours {
			continue
		}
		if _, err := os.Stat(filepath.Join("/proc", pid)); err == nil {
			continue
		}
		// Another run may remove them concurrently.
		if err := unix.Unmount(field[1], unix.MNT_DETACH); err == nil {
			t.Logf("removed the file system %s of a run that was killed", field[1])
			_ = os.RemoveAll(filepath.Dir(field[1]))
		}
	}
}

// mount gives the members in a slot a small file system of their own, if this process may.
func (g *group) mount(s *slot) {
	dir := filepath.Join(g.dir, s.node)
	if err := os.Mkdir(dir, 0o700); err != nil {
		g.t.Fatal(err)
	}
	if err := unix.Mount(mountSource+strconv.Itoa(os.Getpid()), dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes)); err != nil {
		g.t.Logf("no disk will be full, mounting needs root: %v", err)
		return
	}
	s.mounted = true
	g.t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			g.t.Error(err)
		}
	})
}

// fullDisk fills a member's disk for some time.
func fullDisk(r *run) {
	s := r.slots[r.rng.IntN(len(r.slots))]
	if !s.mounted || proc.Subject() != proc.Vigil {
		r.skipped = true // a stock etcd stops, and keeps its alarm
		return
	}
	name := filepath.Join(r.dir, s.node, "foreign")
	f, err := os.Create(name)
	if err != nil {
		r.t.Fatal(err)
	}
	for size, piece := int64(0), int64(diskBytes); piece >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, piece); {
		case err == nil:
			size += piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		case !errors.Is(err, unix.EINTR):
			r.t.Fatal(err)
		}
	}
	r.hold(5 * time.Second)
	if err := errors.Join(f.Close(), os.Remove(name)); err != nil {
		r.t.Fatal(err)
	}
	// Its alarm is cleared with the cause.
	r.recover()
}

// slowDisk lets each sync of one or all members take a quarter of a second, by a tracer.
func slowDisk(r *run) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		r.t.Log("no slow disk: strace is not installed")
		r.skipped = true
		return
	}
	slow := r.slots
	if r.rng.IntN(2) == 0 {
		slow = []*slot{r.slots[r.rng.IntN(len(r.slots))]}
	}
	var traces []*exec.Cmd
	for _, s := range slow {
		cmd := exec.Command(strace, "-f", "-qq", "-o", "/dev/null", "-p", strconv.Itoa(s.Pid()),
			"-e", "trace=fdatasync", "-e", "inject=fdatasync:delay_enter=250000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			r.t.Fatal(err)
		}
		traces = append(traces, cmd)
	}
	r.hold(4 * time.Second)
	for _, cmd := range traces {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
}
