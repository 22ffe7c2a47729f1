// Package abi is what a simulated process and its world agree on: the numbers of the operations of
// a disk, and of errors.
package abi

import (
	"errors"
	"syscall"
)

// The operations of the disk.
const (
	Create = iota
	Open
	OpenWrite
	Remove
	Rename
	Link
	MkdirAll
	List
	Stat
	SyncDir
	Lock
	Free
	Close
	Sync
	Preallocate
	Truncate
	Size
	Read
	Write
)

// Results that are no system error: vfs.ErrLocked and io.EOF.
const (
	Locked = -100
	Ended  = -101
)

// errnos are the system errors, by their negative number in results. Systems give them different
// values.
var errnos = [...]syscall.Errno{
	1: syscall.EIO, 2: syscall.ENOENT, 3: syscall.EEXIST, 4: syscall.ENOTDIR, 5: syscall.ENOSPC,
	6: syscall.EBADF, 7: syscall.EINVAL,
	8: syscall.EAGAIN, 9: syscall.ECONNREFUSED, 10: syscall.ECONNRESET, 11: syscall.EADDRINUSE,
	12: syscall.EISDIR, 13: syscall.ENOTEMPTY,
	14: syscall.EMFILE, 15: syscall.ENOMEM,
}

// Result returns the number of a system error, that of EIO for any other error.
func Result(err error) int64 {
	for i, e := range errnos[1:] {
		if errors.Is(err, e) {
			return int64(-i - 1)
		}
	}
	return -1
}

// Error returns the system error of a number, EIO for an unknown one.
func Error(n int64) error {
	if n < 0 && n > -int64(len(errnos)) {
		return errnos[-n]
	}
	return syscall.EIO
}
