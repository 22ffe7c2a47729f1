package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"vigil/internal/kv"
)

// Cause is what an error of a file operation means for the disk and the system.
type Cause int

const (
	// Other is any other error: the operation failed, and the data are as sound as before.
	Other Cause = iota
	// NoSpace is a full disk or an exhausted quota.
	NoSpace
	// Exhausted is a lack of file descriptors or of memory.
	Exhausted
	// Away is a directory or a file that is not where its path leads.
	Away
	// Damage is data that the disk does not deliver as they were written: a failed checksum, a file
	// that is too short, a read error of the device.
	Damage
)

// CauseOf classifies an error of a file operation, or of a package that read a file. No other
// function does that: a lack of a resource must never count as damage, or as the end of the log.
func CauseOf(err error) Cause {
	var errno syscall.Errno
	switch {
	case err == nil:
		return Other
	case errors.Is(err, kv.ErrCorrupt), errors.Is(err, io.ErrUnexpectedEOF):
		return Damage
	case errors.Is(err, kv.ErrNoSpace):
		return NoSpace
	case errors.Is(err, kv.ErrAway):
		return Away
	case !errors.As(err, &errno):
		return Other
	}
	switch errno {
	case syscall.ENOSPC, syscall.EDQUOT:
		return NoSpace
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return Exhausted
	}
	if damaged(errno) {
		return Damage
	}
	return Other
}

// Unreadable reports whether err is damage that a read found. A write that fails on the device says
// nothing about the data that were written before: a copy that cannot be synced does not make its
// source damaged.
func Unreadable(err error) bool {
	if CauseOf(err) != Damage {
		return false
	}
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.Is(err, kv.ErrCorrupt), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.As(err, &link):
		return false
	}
	return !errors.As(err, &path) || !slices.Contains(writing, path.Op)
}

// writing are the operations, in errors of package os, of this package and of faultfs, that change
// the disk.
var writing = []string{"create", "mkdir", "remove", "unlinkat", "write", "truncate", "fdatasync",
	"fsync", "sync", "sync directory", "fallocate", "preallocate", "rename", "link"}

// MarkShortage marks the error of an operation that lacked a resource and had no effect with the
// error of requests that are refused until the resource is back: kv.ErrNoSpace, kv.ErrAway or
// kv.ErrTooManyRequests, so that kv.Shortage is true. It returns other errors as they are.
//
// Do not mark an error of Sync: a Sync that fails has an effect.
func MarkShortage(err error) error {
	switch CauseOf(err) {
	case NoSpace:
		return fmt.Errorf("%w: %w", kv.ErrNoSpace, err)
	case Exhausted:
		return fmt.Errorf("%w: %w", kv.ErrTooManyRequests, err)
	}
	return err
}
