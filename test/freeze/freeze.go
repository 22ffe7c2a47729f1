// Package freeze gives a member of a test a file system of its own that hangs, is slow or is full
// when the test wants it. The file system is in a file, so that needs root, a loop device and
// mkfs.ext4. Both Vigil and a stock etcd meet the faults: they are the kernel's.
package freeze

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The requests of ioctl that freeze and thaw a file system: what writes to it waits in between.
const fiFreeze, fiThaw = 0xc0045877, 0xc0045878

// A Disk is a file system. Its methods may be called concurrently.
type Disk struct {
	t  testing.TB
	mu sync.Mutex // held while it is frozen or thawed
	fd int
}

// Mount makes a file system of a number of bytes in the file image and mounts it at dir, which
// exists, until the test ends.
func Mount(t testing.TB, image, dir string, bytes int64) (*Disk, error) {
	t.Helper()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(image, bytes); err != nil {
		return nil, err
	}
	for _, cmd := range [][]string{{"mkfs.ext4", "-q", image},
		{"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("%q: %w: %s", cmd, err,
				strings.TrimSpace(string(out))), os.Remove(image))
		}
	}
	d := &Disk{t: t, fd: -1}
	t.Cleanup(func() {
		d.Thaw()
		_ = unix.Close(d.fd)
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var err error
	d.fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return d, err
}

// Freeze lets all writes, syncs and changes of names wait until Thaw. A process that waits for them
// cannot be killed.
func (d *Disk) Freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := unix.IoctlSetInt(d.fd, fiFreeze, 0); err != nil {
		d.t.Errorf("freeze a file system: %v", err)
	}
}

// Thaw ends Freeze. It has no effect on a file system that is not frozen.
func (d *Disk) Thaw() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := thaw(d.fd); err != nil {
		d.t.Errorf("thaw a file system: %v", err)
	}
}

func thaw(fd int) error {
	if err := unix.IoctlSetInt(fd, fiThaw, 0); !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// ThawAt thaws the file system at a directory, which another process may have left frozen.
func ThawAt(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(thaw(fd), unix.Close(fd))
}

// gap is how long a slow disk works between two times in which it does not.
const gap = 20 * time.Millisecond

// Slow lets the disk work only for a moment in each period, so that a program that writes and syncs
// one after the other waits that long for each, until the returned function is called.
func (d *Disk) Slow(period time.Duration) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			d.Freeze()
			select {
			case <-stop:
				d.Thaw()
				return
			case <-time.After(period):
			}
			d.Thaw()
			time.Sleep(gap)
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

// Fill takes all space that is left on the file system of a new file, until the returned function
// is called.
func Fill(t testing.TB, name string) (end func()) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for size, piece := int64(0), int64(1<<30); piece >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, piece); {
		case err == nil:
			size += piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		case !errors.Is(err, unix.EINTR):
			t.Fatal(err)
		}
	}
	return func() {
		if err := errors.Join(f.Close(), os.Remove(name)); err != nil {
			t.Error(fmt.Errorf("room again: %w", err))
		}
	}
}
