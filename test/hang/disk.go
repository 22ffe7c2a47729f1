package hang

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigil/test/proc"
)

// diskBytes is the size of a file system.
const diskBytes = 2 << 30

// The requests of ioctl that freeze and thaw a file system: what writes to it waits in between.
const fiFreeze, fiThaw = 0xc0045877, 0xc0045878

// disk is a file system of its own.
type disk struct {
	t   testing.TB
	dir string
	mu  sync.Mutex // held while it is frozen or thawed
	fd  int
}

// newDisk mounts a file system in a file, until the test ends. It skips the test where that is not possible.
func newDisk(t testing.TB) *disk {
	t.Helper()
	home := proc.Dir(t)
	d := &disk{t: t, dir: filepath.Join(home, "mnt"), fd: -1}
	image := filepath.Join(home, "image")
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, diskBytes); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, d.dir}} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Skipf("cannot mount a file system of its own here, which needs root and a loop device: %v: %s", cmd, strings.TrimSpace(string(out)))
		}
	}
	t.Cleanup(func() {
		d.thaw()
		_ = unix.Close(d.fd)
		if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var err error
	if d.fd, err = unix.Open(d.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	return d
}

// freeze lets all writes, syncs and changes of names wait until thaw.
func (d *disk) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := unix.IoctlSetInt(d.fd, fiFreeze, 0); err != nil {
		d.t.Errorf("freeze %s: %v", d.dir, err)
	}
}

// thaw ends freeze. It has no effect on a file system that is not frozen.
func (d *disk) thaw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := unix.IoctlSetInt(d.fd, fiThaw, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		d.t.Errorf("thaw %s: %v", d.dir, err)
	}
}

// gap is how long a slow disk works between two times in which it does not.
const gap = 20 * time.Millisecond

// slow lets the disk work only for a moment in each period, so that who writes and syncs one after the other waits that long for each,
// until the returned function is called.
func (d *disk) slow(period time.Duration) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			d.freeze()
			select {
			case <-stop:
				d.thaw()
				return
			case <-time.After(period):
			}
			d.thaw()
			time.Sleep(gap)
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// fill takes all space that is left, until the returned function is called.
func (d *disk) fill() (end func()) {
	name := filepath.Join(d.dir, "foreign")
	f, err := os.Create(name)
	if err != nil {
		d.t.Fatal(err)
	}
	for size, piece := int64(0), int64(diskBytes); piece >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, piece); {
		case err == nil:
			size += piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		case !errors.Is(err, unix.EINTR):
			d.t.Fatal(err)
		}
	}
	return func() {
		if err := errors.Join(f.Close(), os.Remove(name)); err != nil {
			d.t.Error(fmt.Errorf("room again: %w", err))
		}
	}
}
