package vfs_test

import (
	"path/filepath"
	"testing"

	"vigil/internal/vfs"
)

// What the system has dropped from memory is not resident, until it is read again.
func TestResident(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f, err := vfs.OS().Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 8 << 20
	if _, err := f.WriteAt(make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.(vfs.CacheDropper).DropCache(0, 0); err != nil {
		t.Fatal(err)
	}
	m, err := f.(vfs.Mapper).Map(size)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const at = 5<<20 + 4000 // two pages
	if m.Resident(at, 200) {
		t.Skip("the file system keeps what is to be dropped")
	}
	if m.Bytes()[at] != 0 || m.Bytes()[at+199] != 0 {
		t.Fatal("not what was written")
	}
	if !m.Resident(at, 200) {
		t.Error("what was read is not resident")
	}
	if m.Resident(1<<20-100, 200) {
		t.Error("what was not read is resident")
	}
	if m.Resident(at-100<<10, 200<<10) {
		t.Error("more pages than Resident asks about are resident")
	}
}
