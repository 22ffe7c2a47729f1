//go:build wasip1

package sys

import (
	"encoding/binary"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"vigil/internal/vfs"
	"vigil/sim/world/abi"
)

//go:wasmimport vigil disk_name
func hostName(op uint32, p unsafe.Pointer, n uint32, p2 unsafe.Pointer, n2 uint32,
	out unsafe.Pointer, outLen uint32) int64

//go:wasmimport vigil disk_file
func hostFile(op uint32, fd int32, arg int64) int64

//go:wasmimport vigil disk_read
func hostRead(fd int32, p unsafe.Pointer, n uint32, off int64) int64

//go:wasmimport vigil disk_write
func hostWrite(fd int32, p unsafe.Pointer, n uint32, off int64) int64

// hostDelay returns how many nanoseconds the disk needs for an operation that syncs, times two, and
// plus one if that time passes after it has happened.
//
//go:wasmimport vigil disk_delay
func hostDelay() int64

//go:wasmimport vigil disk_hangs
func hostHangs(op uint32, p unsafe.Pointer, n uint32) uint32

// hangPause is how often an operation that hangs is tried again.
const hangPause = 20 * time.Millisecond

// await waits while an operation hangs. Only the goroutine that does it waits.
func await(op uint32, name string) {
	p, n := textOf(name)
	for hostHangs(op, p, n) != 0 {
		time.Sleep(hangPause)
	}
}

// Disk is the simulated disk of this machine.
type Disk struct{}

func call(op uint32, verb, name, other string, out []byte) (int64, error) {
	await(op, name)
	a, an := textOf(name)
	b, bn := textOf(other)
	p, n := bytesOf(out)
	r := hostName(op, a, an, b, bn, p, n)
	return r, failure(r, verb, name)
}

func failure(r int64, verb, name string) error {
	switch {
	case r >= 0:
		return nil
	case r == abi.Locked:
		return &fs.PathError{Op: verb, Path: name, Err: vfs.ErrLocked}
	case r == abi.Ended:
		return io.EOF
	}
	return &fs.PathError{Op: verb, Path: name, Err: abi.Error(r)}
}

// synced does an operation that takes the time of the disk.
func synced(do func() error) error {
	d := hostDelay()
	if d&1 == 0 {
		time.Sleep(time.Duration(d / 2))
		return do()
	}
	err := do()
	time.Sleep(time.Duration(d / 2))
	return err
}

func open(op uint32, verb, name string) (vfs.File, error) {
	fd, err := call(op, verb, name, "", nil)
	if err != nil {
		return nil, err
	}
	return &file{int32(fd), name}, nil
}

// Create implements vfs.FS, and so do the others.
func (Disk) Create(name string) (vfs.File, error)    { return open(abi.Create, "create", name) }
func (Disk) Open(name string) (vfs.File, error)      { return open(abi.Open, "open", name) }
func (Disk) OpenWrite(name string) (vfs.File, error) { return open(abi.OpenWrite, "open", name) }

func (Disk) Remove(name string) error {
	_, err := call(abi.Remove, "remove", name, "", nil)
	return err
}

func (Disk) Rename(a, b string) error {
	_, err := call(abi.Rename, "rename", a, b, nil)
	return err
}

func (Disk) Link(a, b string) error {
	_, err := call(abi.Link, "link", a, b, nil)
	return err
}

func (Disk) MkdirAll(name string) error {
	return synced(func() error {
		_, err := call(abi.MkdirAll, "mkdir", name, "", nil)
		return err
	})
}

func (Disk) SyncDir(name string) error {
	return synced(func() error {
		_, err := call(abi.SyncDir, "sync", name, "", nil)
		return err
	})
}

func (Disk) List(name string) ([]string, error) {
	for buf := make([]byte, 64<<10); ; buf = make([]byte, 2*len(buf)) {
		n, err := call(abi.List, "list", name, "", buf)
		switch {
		case err != nil:
			return nil, err
		case n == 0:
			return nil, nil
		case int(n) <= len(buf):
			return strings.Split(string(buf[:n]), "\x00"), nil
		}
	}
}

func (Disk) Stat(name string) (fs.FileInfo, error) {
	var buf [9]byte
	if _, err := call(abi.Stat, "stat", name, "", buf[:]); err != nil {
		return nil, err
	}
	return info{filepath.Base(name), int64(binary.LittleEndian.Uint64(buf[:])), buf[8] != 0}, nil
}

func (Disk) Lock(name string) (io.Closer, error) {
	fd, err := call(abi.Lock, "lock", name, "", nil)
	if err != nil {
		return nil, err
	}
	return &file{int32(fd), name}, nil
}

func (Disk) Free(name string) (int64, error) { return call(abi.Free, "statfs", name, "", nil) }

type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}

type file struct {
	fd   int32
	name string
}

func (f *file) Name() string { return f.name }

func (f *file) ReadAt(b []byte, off int64) (int, error) {
	await(abi.Read, f.name)
	for n := 0; ; {
		p, rest := bytesOf(b[n:])
		if rest == 0 {
			return n, nil
		}
		r := hostRead(f.fd, p, rest, off+int64(n))
		if r < 0 {
			return n, failure(r, "read", f.name)
		}
		n += int(r)
	}
}

func (f *file) WriteAt(b []byte, off int64) (int, error) {
	await(abi.Write, f.name)
	p, n := bytesOf(b)
	r := hostWrite(f.fd, p, n, off)
	if r < 0 {
		return 0, failure(r, "write", f.name)
	}
	if int(r) < len(b) {
		return int(r), &fs.PathError{Op: "write", Path: f.name, Err: abi.Error(-1)}
	}
	return int(r), nil
}

func (f *file) do(op uint32, verb string, arg int64) error {
	await(op, f.name)
	return failure(hostFile(op, f.fd, arg), verb, f.name)
}

func (f *file) Close() error { return f.do(abi.Close, "close", 0) }
func (f *file) Sync() error {
	return synced(func() error { return f.do(abi.Sync, "sync", 0) })
}
func (f *file) Preallocate(size int64) error { return f.do(abi.Preallocate, "preallocate", size) }
func (f *file) Truncate(size int64) error    { return f.do(abi.Truncate, "truncate", size) }

func (f *file) Size() (int64, error) {
	n := hostFile(abi.Size, f.fd, 0)
	return n, failure(n, "stat", f.name)
}
