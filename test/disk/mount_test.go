package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const mib = 1 << 20

// mountSmall mounts a file system of a size on a new directory, until the test ends. kind is tmpfs,
// or ext4 in a file. It skips the test where that is not possible.
func mountSmall(t *testing.T, kind string, size int64) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	switch kind {
	case "tmpfs":
		err = unix.Mount("vigil-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size))
	default:
		err = mountFile(t, kind, dir, size)
	}
	if err != nil {
		t.Skipf("cannot mount a small %s here, which needs root and the right to mount: %v", kind,
			err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func mountFile(t *testing.T, kind, dir string, size int64) error {
	image := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	for _, cmd := range [][]string{{"mkfs." + kind, "-q", image},
		{"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", cmd, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// foreign takes all the space that is left with a file, and returns its name and size.
func foreign(t *testing.T, dir string) (string, int64) {
	t.Helper()
	name := filepath.Join(dir, "foreign")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := mib; piece >= 4096; {
		_, err := f.Write(make([]byte, piece))
		switch {
		case errors.Is(err, unix.ENOSPC):
			piece /= 4
		case err != nil:
			t.Fatal(err)
		}
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return name, st.Size()
}
