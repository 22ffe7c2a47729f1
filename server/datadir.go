package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"vigil/internal/holder"
	"vigil/internal/vfs"
)

// lockDataDir locks the data directory for this process. It writes nothing into the data directory
// of an etcd member.
func lockDataDir(fsys vfs.FS, dir string) (io.Closer, error) {
	// The second is the directory of etcd's that the first one is.
	for _, sign := range []string{"member", filepath.Join("snap", "db")} {
		switch _, err := fsys.Stat(filepath.Join(dir, sign)); {
		case err == nil:
			return nil, fmt.Errorf("data directory %s holds the data of an etcd member (%s); "+
				"choose another --data-dir, which vigilctl snapshot restore can fill "+
				"from it", dir, sign)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("data directory %s: %w", dir, err)
		}
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	lock, err := fsys.Lock(filepath.Join(dir, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, inUse("data directory", dir, filepath.Join(dir, "LOCK"))
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return lock, nil
}

// inUse returns the error for a directory that another process has locked.
func inUse(what, dir, lock string) error {
	by := holder.OfLock(lock)
	if by != "" {
		by = " (" + by + ")"
	}
	return fmt.Errorf("%s %s is in use by another process%s: stop that, or give this member a "+
		"--data-dir of its own", what, dir, by)
}
