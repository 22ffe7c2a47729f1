package vfs

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// damaged reports whether a read that failed with errno met damage: besides EIO these are the ways
// in which file systems and drivers report a checksum or a medium that is bad.
func damaged(errno unix.Errno) bool {
	switch errno {
	case unix.EIO, unix.EUCLEAN, unix.EBADMSG, unix.ENODATA, unix.EREMOTEIO, unix.EILSEQ:
		return true
	}
	return false
}

func fdatasync(fd int) error { return unix.Fdatasync(fd) }

// mincore sets the lowest bit of vec[i] if the i-th page of b, which begins with a page, is in
// memory.
func mincore(b, vec []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)),
		uintptr(unsafe.Pointer(unsafe.SliceData(vec))))
	if errno != 0 {
		return errno
	}
	return nil
}

func dropCache(fd int, off, n int64) error {
	return unix.Fadvise(fd, off, n, unix.FADV_DONTNEED)
}

func fallocate(fd int, size int64) error {
	err := unix.Fallocate(fd, 0, 0, size)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return errors.ErrUnsupported
	}
	return err
}

// whereabouts returns the path that an open file has now, or that it was deleted. The path may be
// in another mount namespace, or in none.
func whereabouts(f File) (path string, deleted bool) {
	o, ok := f.(*osFile)
	if !ok {
		return "", false
	}
	err := o.control("readlink", func(fd int) (err error) {
		path, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		return err
	})
	if err != nil {
		return "", false
	}
	return path, strings.HasSuffix(path, " (deleted)")
}
