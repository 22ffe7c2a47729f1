//go:build unix

package certs

import (
	"io/fs"
	"syscall"
	"time"
)

// identity returns the inode of a file and the time of its last change of any kind.
func identity(i fs.FileInfo) (inode uint64, changed time.Time) {
	if sys, ok := i.Sys().(*syscall.Stat_t); ok {
		return sys.Ino, time.Unix(sys.Ctim.Unix())
	}
	return 0, time.Time{}
}
