//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS returns the file system of the operating system. Its files are Mappers. Files are made with
// mode 0600 and are closed on exec.
func OS() FS { return osFS{} }

type osFS struct{}

// namesChange marks a file system whose names others can change.
func (osFS) namesChange() {}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func (osFS) OpenWrite(name string) (File, error) { return openOS(name, os.O_RDWR) }

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

func (osFS) Link(oldname, newname string) error { return os.Link(oldname, newname) }

func (osFS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

func (osFS) List(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// MkdirAll syncs the parent of every directory it makes. The parent of dir itself is synced even if
// dir exists, because an earlier process may have made it and died before its own sync.
func (f osFS) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	st, err := os.Stat(dir)
	switch {
	case err == nil && !st.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case err == nil:
		if err := f.SyncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if parent != dir {
		if err := f.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.SyncDir(parent)
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := lockFile(name)
	if err != nil {
		return nil, err
	}
	l := &osLock{name: name}
	l.mu.file = f
	return l, nil
}

func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = retryEINTR(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if err == nil {
		return f, nil
	}
	_ = f.Close() // nothing was written to it
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
}

// lockOpen locks an open directory if that is possible.
func lockOpen(f File, name string) error {
	o, ok := f.(*osFile)
	if !ok {
		return nil
	}
	err := o.control("lock",
		func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return &fs.PathError{Op: "lock", Path: name, Err: ErrLocked}
	}
	return nil
}

// osLock is a locked file. It implements Keeper.
type osLock struct {
	name string
	mu   struct {
		sync.Mutex
		closed bool
		file   *os.File
	}
}

func (l *osLock) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
	return l.mu.file.Close()
}

func (l *osLock) Keep() (renewed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return false, nil
	}
	held, err := l.mu.file.Stat()
	if err != nil {
		return false, nil
	}
	err = CheckPlace(osFS{}, l.name, held)
	away, ok := errors.AsType[*AwayError](err)
	if !ok {
		return false, err
	}
	f, err := lockFile(l.name)
	if errors.Is(err, ErrLocked) {
		away.Other, away.Locked = true, true
		return false, away
	}
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnsure, err)
	}
	_ = l.mu.file.Close() // nothing was written to it
	l.mu.file = f
	return true, nil
}

func (osFS) Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

type osFile struct {
	*os.File
	raw syscall.RawConn
}

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{File: f, raw: raw}, nil
}

// control runs a system call on the descriptor, which is not closed during the call.
func (f *osFile) control(op string, call func(fd int) error) error {
	var err error
	cerr := f.raw.Control(func(fd uintptr) { err = retryEINTR(func() error { return call(int(fd)) }) })
	if cerr != nil {
		err = fs.ErrClosed
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}

func (f *osFile) Sync() error { return f.control("fdatasync", fdatasync) }

func (f *osFile) Preallocate(size int64) error {
	if size <= 0 {
		return nil
	}
	err := f.control("fallocate", func(fd int) error { return fallocate(fd, size) })
	if err == nil || !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// A file system without fallocate allocates blocks for bytes that are written.
	have, err := f.Size()
	if err != nil || have >= size {
		return err
	}
	zero := make([]byte, min(size-have, 1<<20))
	for off := have; off < size; off += int64(len(zero)) {
		if _, err := f.WriteAt(zero[:min(int64(len(zero)), size-off)], off); err != nil {
			return err
		}
	}
	return nil
}

func (f *osFile) DropCache(off, n int64) error {
	return f.control("fadvise", func(fd int) error { return dropCache(fd, off, n) })
}

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *osFile) Map(size int64) (Mapping, error) {
	have, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size < 0 || size > have || int64(int(size)) != size {
		return nil, &fs.PathError{Op: "mmap", Path: f.Name(),
			Err: fmt.Errorf("%d bytes of a file of %d: %w", size, have, fs.ErrInvalid)}
	}
	if size == 0 {
		return &osMapping{}, nil
	}
	var b []byte
	err = f.control("mmap", func(fd int) (err error) {
		b, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &osMapping{b: b}, nil
}

type osMapping struct{ b []byte }

func (m *osMapping) Bytes() []byte { return m.b }

// mostPages is the largest number of pages that Resident asks about.
const mostPages = 8

// Resident asks mincore(2), which looks at the cache of the file system, too.
func (m *osMapping) Resident(off, n int64) bool {
	if off < 0 || n <= 0 || off > int64(len(m.b))-n {
		return false
	}
	page := int64(os.Getpagesize())
	from := off &^ (page - 1)
	pages := (off + n - from + page - 1) / page
	if pages > mostPages {
		return false
	}
	var vec [mostPages]byte
	if mincore(m.b[from:off+n], vec[:pages]) != nil {
		return false
	}
	for _, v := range vec[:pages] {
		if v&1 == 0 {
			return false
		}
	}
	return true
}

func (m *osMapping) Close() error {
	if m.b == nil {
		return nil
	}
	b := m.b
	m.b = nil
	return unix.Munmap(b)
}

func retryEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
