package vfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs"
)

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
		if !errors.Is(marked, c.err) || c.marked != nil && !errors.Is(marked, c.marked) || kv.Shortage(marked) != (c.marked != nil) {
			t.Errorf("%v is marked as %v", c.err, marked)
		}
		if kv.Shortage(c.err) {
			t.Errorf("%v passes for a shortage before it was marked", c.err)
		}
	}
}
