//go:build unix && !linux

package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

func damaged(errno unix.Errno) bool { return errno == unix.EIO }

func fdatasync(fd int) error { return unix.Fsync(fd) }

func mincore(_, _ []byte) error { return errors.ErrUnsupported }

func dropCache(int, int64, int64) error { return errors.ErrUnsupported }

func fallocate(int, int64) error { return errors.ErrUnsupported }

func whereabouts(File) (path string, deleted bool) { return "", false }
