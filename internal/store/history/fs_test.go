package history

import (
	"context"

	"vigil/internal/vfs"
)

var tContext = context.Background()

// unmapped is a file system whose files cannot be mapped.
type unmapped struct{ vfs.FS }

type plainFile struct{ vfs.File }

func plain(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return plainFile{f}, nil
}

func (u unmapped) Create(name string) (vfs.File, error)    { return plain(u.FS.Create(name)) }
func (u unmapped) Open(name string) (vfs.File, error)      { return plain(u.FS.Open(name)) }
func (u unmapped) OpenWrite(name string) (vfs.File, error) { return plain(u.FS.OpenWrite(name)) }
