package hang

import (
	"os"
	"path/filepath"
	"testing"

	"vigil/test/freeze"
	"vigil/test/proc"
)

// diskBytes is the size of a file system.
const diskBytes = 2 << 30

// disk is a file system of its own.
type disk struct {
	*freeze.Disk
	t   testing.TB
	dir string
}

// newDisk mounts a file system, until the test ends. It skips the test where that is not possible.
func newDisk(t testing.TB) *disk {
	t.Helper()
	home := proc.Dir(t)
	d := &disk{t: t, dir: filepath.Join(home, "mnt")}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.Disk, err = freeze.Mount(t, filepath.Join(home, "image"), d.dir, diskBytes); err != nil {
		t.Skipf("cannot mount a file system of its own here, which needs root and a loop device: %v", err)
	}
	return d
}

// fill takes all space that is left, until the returned function is called.
func (d *disk) fill() (end func()) { return freeze.Fill(d.t, filepath.Join(d.dir, "foreign")) }
