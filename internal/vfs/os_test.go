package vfs_test

import (
	"path/filepath"
	"testing"

	"vigil/internal/vfs"
	"vigil/internal/vfs/vfstest"
)

func TestOSContract(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) { return vfs.OS(), t.TempDir() })
}

// The directories that MkdirAll makes are for the owner only.
func TestOSMode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := vfs.OS().MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		st, err := vfs.OS().Stat(d)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", d, st.Mode())
		}
	}
}
