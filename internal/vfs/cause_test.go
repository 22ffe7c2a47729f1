package vfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs"
)

// TestUnreadable: an error of a read is damage, one of an operation that writes is not.
func TestUnreadable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{fmt.Errorf("a: %w", kv.ErrCorrupt), true},
		{fmt.Errorf("a: %w", io.ErrUnexpectedEOF), true},
		{syscall.EIO, true},
		{&fs.PathError{Op: "read", Path: "a", Err: syscall.EIO}, true},
		{&fs.PathError{Op: "map", Path: "a", Err: syscall.EIO}, true},
		{&fs.PathError{Op: "open", Path: "a", Err: syscall.EIO}, true},
		{fmt.Errorf("a: %w", &fs.PathError{Op: "sync", Path: "a", Err: syscall.EIO}), false},
		{&fs.PathError{Op: "fdatasync", Path: "a", Err: syscall.EIO}, false},
		{&fs.PathError{Op: "write", Path: "a", Err: syscall.EIO}, false},
		{&os.LinkError{Op: "rename", Old: "a", New: "b", Err: syscall.EIO}, false},
		{&fs.PathError{Op: "read", Path: "a", Err: syscall.ENOSPC}, false},
	} {
		if got := vfs.Unreadable(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestCause(t *testing.T) {
	path := func(err error) error {
		return fmt.Errorf("history: %w", &fs.PathError{Op: "open", Path: "a", Err: err})
	}
	for _, c := range []struct {
		err    error
		want   vfs.Cause
		marked error
	}{
		{nil, vfs.Other, nil},
		{errors.New("some other error"), vfs.Other, nil},
		{path(syscall.EACCES), vfs.Other, nil},
		{path(syscall.ENOENT), vfs.Other, nil},
		{path(syscall.EINTR), vfs.Other, nil},
		{path(fs.ErrClosed), vfs.Other, nil},
		{path(syscall.ENOSPC), vfs.NoSpace, kv.ErrNoSpace},
		{path(syscall.EDQUOT), vfs.NoSpace, kv.ErrNoSpace},
		{path(syscall.EMFILE), vfs.Exhausted, kv.ErrTooManyRequests},
		{path(syscall.ENFILE), vfs.Exhausted, kv.ErrTooManyRequests},
		{path(syscall.ENOMEM), vfs.Exhausted, kv.ErrTooManyRequests},
		{path(syscall.EIO), vfs.Damage, nil},
		{fmt.Errorf("a: %w", io.ErrUnexpectedEOF), vfs.Damage, nil},
		{fmt.Errorf("a: %w", kv.ErrCorrupt), vfs.Damage, nil},
	} {
		if got := vfs.CauseOf(c.err); got != c.want {
			t.Errorf("%v: cause %v, want %v", c.err, got, c.want)
		}
		marked := vfs.MarkShortage(c.err)
		if !errors.Is(marked, c.err) || c.marked != nil && !errors.Is(marked, c.marked) ||
			kv.Shortage(marked) != (c.marked != nil) {
			t.Errorf("%v is marked as %v", c.err, marked)
		}
		if kv.Shortage(c.err) {
			t.Errorf("%v passes for a shortage before it was marked", c.err)
		}
	}
}
