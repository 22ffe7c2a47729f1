package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"vigil/internal/vfs"
)

// lockDataDir locks the data directory for this process. It writes nothing into the data directory of an etcd member.
func lockDataDir(fsys vfs.FS, dir string) (io.Closer, error) {
	switch _, err := fsys.Stat(filepath.Join(dir, "member")); {
	case err == nil:
		return nil, fmt.Errorf("data directory %s holds the data of an etcd member; choose another --data-dir, which vigilctl snapshot restore can fill from it", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	lock, err := fsys.Lock(filepath.Join(dir, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("data directory %s is in use by another process", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return lock, nil
}
