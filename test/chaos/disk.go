package chaos

import (
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

	"vigil/test/freeze"
	"vigil/test/proc"
)

const (
	// diskBytes is the size of a member's file system, where that is one of its own.
	diskBytes = 512 << 20
	// mountSource and the number of the process are the source of its mounts.
	mountSource = "vigil-chaos-"
	// imageSuffix follows it in the name of a file that has a file system.
	imageSuffix = ".image"
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
		source := field[0]
		if device, ok := strings.CutPrefix(source, "/dev/"); ok {
			// Of a loop device it is the file behind it.
			file, _ := os.ReadFile("/sys/block/" + device + "/loop/backing_file")
			source = strings.TrimSuffix(filepath.Base(strings.TrimSpace(string(file))), imageSuffix)
		}
		pid, ours := strings.CutPrefix(source, mountSource)
		if !ours {
			continue
		}
		if _, err := os.Stat(filepath.Join("/proc", pid)); err == nil {
			continue
		}
		_ = freeze.ThawAt(field[1])
		// Another run may remove them concurrently.
		if err := unix.Unmount(field[1], unix.MNT_DETACH); err == nil {
			t.Logf("removed the file system %s of a run that was killed", field[1])
			_ = os.RemoveAll(filepath.Dir(field[1]))
		}
	}
}

// mount gives the members in a slot a small file system of their own, if this process may: one that
// can hang, or else one in memory.
func (g *group) mount(s *slot) {
	dir := filepath.Join(g.dir, s.node)
	if err := os.Mkdir(dir, 0o700); err != nil {
		g.t.Fatal(err)
	}
	source := mountSource + strconv.Itoa(os.Getpid())
	home := filepath.Join(g.dir, s.node+".disk")
	if err := os.Mkdir(home, 0o700); err != nil {
		g.t.Fatal(err)
	}
	var err error
	if s.disk, err = freeze.Mount(g.t, filepath.Join(home, source+imageSuffix), dir,
		diskBytes); err == nil {
		s.mounted = true
		return
	}
	g.t.Logf("no disk will hang: %v", err)
	if err := unix.Mount(source, dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes)); err != nil {
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
	room := freeze.Fill(r.t, filepath.Join(r.dir, s.node, "foreign"))
	r.hold(5 * time.Second)
	room()
	// Its alarm is cleared with the cause.
	r.recover()
}

// hungDisk lets the disk of a member hang for some seconds, in a soak for up to half a minute. The
// others go on without it.
func hungDisk(r *run, s *slot) {
	if s.disk == nil {
		r.skipped = true
		return
	}
	began, longest := r.clock(), 5*time.Second
	if r.soak {
		longest = 30 * time.Second
	}
	s.disk.Freeze()
	defer s.disk.Thaw() // also if the test fails: nobody could end the member
	r.recover()
	r.hold(time.Second +
		time.Duration(r.rng.Int64N(int64(longest-time.Second))) - (r.clock() - began))
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
