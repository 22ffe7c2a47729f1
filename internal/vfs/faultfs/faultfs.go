// Package faultfs is a vfs.FS that makes another one fail on demand: at the operation a test
// chooses, having done it or not, or by running out of space.
//
// A test that wants to know what every single failure does counts the operations of an undisturbed
// run with Count and then repeats the run, failing each in turn with Nth.
package faultfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"

	"vigil/internal/vfs"
)

// ErrInjected is the error of a fault without a particular error. It is an EIO.
var ErrInjected = fmt.Errorf("injected fault: %w", syscall.EIO)

// Op is a kind of operation.
type Op int

// The operations of vfs.FS and vfs.File.
const (
	OpCreate Op = iota
	OpOpen
	OpOpenWrite
	OpRemove
	OpRename
	OpLink
	OpMkdirAll
	OpList
	OpStat
	OpSyncDir
	OpLock
	OpFree
	OpRead
	OpWrite
	OpSync
	OpPreallocate
	OpTruncate
	OpSize
	OpMap
	numOps
)

func (o Op) String() string {
	return [numOps]string{"create", "open", "open for writing", "remove", "rename", "link",
		"mkdir", "list",
		"stat", "sync directory", "lock", "free", "read", "write", "sync", "preallocate",
		"truncate", "size",
		"map"}[o]
}

// Changes reports whether the operation changes the disk.
func (o Op) Changes() bool {
	switch o {
	case OpCreate, OpRemove, OpRename, OpLink, OpMkdirAll, OpSyncDir, OpWrite, OpSync,
		OpPreallocate, OpTruncate:
		return true
	}
	return false
}

// Lacks reports whether the operation can fail with errno for lack of a resource without any
// effect. A sync cannot: the bytes that it had to write are lost.
func (o Op) Lacks(errno syscall.Errno) bool {
	switch errno {
	case syscall.ENOSPC, syscall.EDQUOT:
		return o == OpCreate || o == OpRename || o == OpLink || o == OpMkdirAll || o == OpWrite ||
			o == OpPreallocate
	case syscall.EMFILE, syscall.ENFILE:
		return o == OpCreate || o == OpOpen || o == OpOpenWrite || o == OpMkdirAll || o == OpList ||
			o == OpSyncDir || o == OpLock
	case syscall.ENOMEM:
		return o != OpSync
	}
	return false
}

// Fault is what happens to an operation.
type Fault int

const (
	// None lets it happen.
	None Fault = iota
	// Fail refuses it with ErrInjected.
	Fail
	// FailPersisted does it and reports ErrInjected nevertheless.
	FailPersisted
	// ShortWrite writes the first half and reports ErrInjected; for anything but a write it is
	// Fail.
	ShortWrite
	// NoSpace refuses it with ENOSPC.
	NoSpace
	// ShortRead reads the first half and reports io.EOF, as if the file ended there; for anything
	// but a read it is None.
	ShortRead
	// FailLost makes a Sync fail for good: bytes that were written before it stay readable until a
	// crash, and a later Sync does not make them durable unless they are written again. It needs a
	// file system that can do that, as memfs can; elsewhere, and for other operations, it is Fail.
	FailLost
)

// errnoFault is added to the number of an error of the operating system.
const errnoFault = 1 << 16

// Errno returns the fault that rejects an operation with an error of the operating system.
func Errno(errno syscall.Errno) Fault { return errnoFault + Fault(errno) }

func (f Fault) String() string {
	if f >= errnoFault {
		return syscall.Errno(f - errnoFault).Error()
	}
	return [...]string{"none", "fail", "fail persisted", "short write", "no space", "short read",
		"fail lost"}[f]
}

// FS is a file system with faults. It is safe for concurrent use if the inner file system is.
type FS struct {
	inner  vfs.FS
	decide func(op Op, name string) Fault
	count  atomic.Int64

	space struct {
		sync.Mutex
		limited bool
		free    int64
		links   map[string]*int // names of one file beyond its first, shared by all of them
	}
}

// New returns inner with the faults that decide names. decide is called once for each operation,
// concurrently if operations are; nil means no faults.
func New(inner vfs.FS, decide func(op Op, name string) Fault) *FS {
	f := &FS{inner: inner, decide: decide}
	f.space.links = map[string]*int{}
	return f
}

// Nth returns a function for New that injects a fault into the n-th operation, from 1, of those
// that among accepts. A nil among accepts all.
func Nth(n int64, fault Fault, among func(op Op, name string) bool) func(Op, string) Fault {
	var seen atomic.Int64
	return func(op Op, name string) Fault {
		if (among == nil || among(op, name)) && seen.Add(1) == n {
			return fault
		}
		return None
	}
}

// Window fails a number of operations in a row with an error of the system, those that among
// accepts, and remembers which.
type Window struct {
	errno       syscall.Errno
	first, last int64
	among       func(op Op, name string) bool
	seen        atomic.Int64
	hit         atomic.Pointer[string]
	off         atomic.Bool
}

// NewWindow returns a Window over width operations from the n-th on, from 1. A nil among accepts
// all.
func NewWindow(n, width int64, errno syscall.Errno, among func(op Op, name string) bool) *Window {
	return &Window{errno: errno, first: n, last: n + width - 1, among: among}
}

// Decide is the function for New.
func (w *Window) Decide(op Op, name string) Fault {
	if w.off.Load() || w.among != nil && !w.among(op, name) {
		return None
	}
	n := w.seen.Add(1)
	if n < w.first || n > w.last {
		return None
	}
	what := fmt.Sprintf("%v from operation %d on, %v %s", w.errno, n, op, name)
	w.hit.CompareAndSwap(nil, &what)
	return Errno(w.errno)
}

// Hit returns the first operation that failed; it is empty if none did.
func (w *Window) Hit() string {
	if s := w.hit.Load(); s != nil {
		return *s
	}
	return ""
}

// Close ends the window: nothing fails any more.
func (w *Window) Close() { w.off.Store(true) }

// Count returns how many operations there were so far.
func (f *FS) Count() int64 { return f.count.Load() }

// SetFree limits the space to n more bytes, counted in file sizes: a write, preallocation or
// truncation that makes a file grow beyond it fails with ENOSPC, and removing or shrinking a file
// gives its space back.
func (f *FS) SetFree(n int64) {
	f.space.Lock()
	defer f.space.Unlock()
	f.space.limited = true
	f.space.free = n
}

// do runs an operation under its fault.
func (f *FS) do(op Op, name string, run func() error) error {
	fault := f.enter(op, name)
	switch fault {
	case None, ShortRead:
		return run()
	case FailPersisted:
		if err := run(); err != nil {
			return err
		}
	}
	return faultError(op, name, fault)
}

func (f *FS) enter(op Op, name string) Fault {
	f.count.Add(1)
	if f.decide == nil {
		return None
	}
	return f.decide(op, name)
}

func faultError(op Op, name string, fault Fault) error {
	err := ErrInjected
	switch {
	case fault == NoSpace:
		err = syscall.ENOSPC
	case fault >= errnoFault:
		err = syscall.Errno(fault - errnoFault)
	}
	return &fs.PathError{Op: op.String(), Path: name, Err: err}
}

func (f *FS) file(op Op, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	var in vfs.File
	err := f.do(op, name, func() (err error) {
		in, err = open(name)
		return err
	})
	if err == nil {
		return &file{in, f}, nil
	}
	if in != nil {
		err = errors.Join(err, in.Close())
	}
	return nil, err
}

// Create implements vfs.FS.
func (f *FS) Create(name string) (vfs.File, error) { return f.file(OpCreate, name, f.inner.Create) }

// Open implements vfs.FS.
func (f *FS) Open(name string) (vfs.File, error) { return f.file(OpOpen, name, f.inner.Open) }

// OpenWrite implements vfs.FS.
func (f *FS) OpenWrite(name string) (vfs.File, error) {
	return f.file(OpOpenWrite, name, f.inner.OpenWrite)
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	return f.do(OpRemove, name, func() error {
		size := f.sizeOf(name)
		if err := f.inner.Remove(name); err != nil {
			return err
		}
		f.release(name, size)
		return nil
	})
}

// Rename implements vfs.FS.
func (f *FS) Rename(oldname, newname string) error {
	return f.do(OpRename, oldname, func() error {
		size := f.sizeOf(newname)
		if err := f.inner.Rename(oldname, newname); err != nil || oldname == newname {
			return err
		}
		f.release(newname, size)
		f.space.Lock()
		defer f.space.Unlock()
		if n := f.space.links[oldname]; n != nil {
			f.space.links[newname] = n
			delete(f.space.links, oldname)
		}
		return nil
	})
}

// Link implements vfs.FS.
func (f *FS) Link(oldname, newname string) error {
	return f.do(OpLink, oldname, func() error {
		if err := f.inner.Link(oldname, newname); err != nil {
			return err
		}
		f.space.Lock()
		defer f.space.Unlock()
		n := f.space.links[oldname]
		if n == nil {
			n = new(int)
			f.space.links[oldname] = n
		}
		*n++
		f.space.links[newname] = n
		return nil
	})
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string) error {
	return f.do(OpMkdirAll, dir, func() error { return f.inner.MkdirAll(dir) })
}

// List implements vfs.FS.
func (f *FS) List(dir string) (names []string, err error) {
	err = f.do(OpList, dir, func() (err error) {
		names, err = f.inner.List(dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (st fs.FileInfo, err error) {
	err = f.do(OpStat, name, func() (err error) {
		st, err = f.inner.Stat(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(dir string) error {
	return f.do(OpSyncDir, dir, func() error { return f.inner.SyncDir(dir) })
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (l io.Closer, err error) {
	err = f.do(OpLock, name, func() (err error) {
		l, err = f.inner.Lock(name)
		return err
	})
	if err != nil {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		return nil, err
	}
	return l, nil
}

// Free implements vfs.FS.
func (f *FS) Free(dir string) (n int64, err error) {
	err = f.do(OpFree, dir, func() (err error) {
		n, err = f.inner.Free(dir)
		return err
	})
	f.space.Lock()
	defer f.space.Unlock()
	if f.space.limited {
		n = max(f.space.free, 0)
	}
	return n, err
}

func (f *FS) sizeOf(name string) int64 {
	st, err := f.inner.Stat(name)
	if err != nil || st.IsDir() {
		return 0
	}
	return st.Size()
}

// release returns the space of a file that lost a name.
func (f *FS) release(name string, size int64) {
	f.space.Lock()
	defer f.space.Unlock()
	if n := f.space.links[name]; n != nil {
		delete(f.space.links, name)
		if *n > 0 {
			*n--
			return
		}
	}
	f.space.free += size
}

// file is a File with faults.
type file struct {
	vfs.File
	fs *FS
}

func (f *file) ReadAt(b []byte, off int64) (n int, err error) {
	switch fault := f.fs.enter(OpRead, f.Name()); {
	case fault == None:
		return f.File.ReadAt(b, off)
	case fault == ShortRead && len(b) > 0:
		if n, err = f.File.ReadAt(b[:len(b)/2], off); err == nil {
			err = io.EOF
		}
		return n, err
	case fault == FailPersisted:
		n, err = f.File.ReadAt(b, off)
		return n, errors.Join(err, faultError(OpRead, f.Name(), fault))
	default:
		return 0, faultError(OpRead, f.Name(), fault)
	}
}

func (f *file) WriteAt(b []byte, off int64) (int, error) {
	fault := f.fs.enter(OpWrite, f.Name())
	switch {
	case fault == ShortRead:
		fault = None
	case fault == ShortWrite:
		b = b[:len(b)/2]
	case fault == Fail, fault == NoSpace, fault >= errnoFault:
		return 0, faultError(OpWrite, f.Name(), fault)
	}
	n := 0
	err := f.grow(OpWrite, off+int64(len(b)), func() (err error) {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	if err == nil && fault != None {
		err = faultError(OpWrite, f.Name(), fault)
	}
	return n, err
}

func (f *file) Sync() error {
	switch fault := f.fs.enter(OpSync, f.Name()); fault {
	case None, ShortRead:
		return f.File.Sync()
	case FailPersisted:
		return errors.Join(f.File.Sync(), faultError(OpSync, f.Name(), fault))
	case FailLost:
		if l, ok := f.File.(interface{ LoseSync() error }); ok {
			return errors.Join(l.LoseSync(), faultError(OpSync, f.Name(), fault))
		}
		fallthrough
	default:
		return faultError(OpSync, f.Name(), fault)
	}
}

func (f *file) Preallocate(size int64) error {
	return f.fs.do(OpPreallocate, f.Name(), func() error {
		return f.grow(OpPreallocate, size, func() error { return f.File.Preallocate(size) })
	})
}

func (f *file) Truncate(size int64) error {
	return f.fs.do(OpTruncate, f.Name(), func() error {
		return f.grow(OpTruncate, size, func() error { return f.File.Truncate(size) })
	})
}

// grow runs an operation that may change the size to size, if there is room for it.
func (f *file) grow(op Op, size int64, run func() error) error {
	f.fs.space.Lock()
	defer f.fs.space.Unlock()
	if !f.fs.space.limited {
		return run()
	}
	before, err := f.File.Size()
	if err != nil {
		return err
	}
	if size-before > f.fs.space.free && size > before {
		return faultError(op, f.Name(), NoSpace)
	}
	err = run()
	after, serr := f.File.Size()
	f.fs.space.free -= after - before
	return errors.Join(err, serr)
}

func (f *file) Size() (n int64, err error) {
	err = f.fs.do(OpSize, f.Name(), func() (err error) {
		n, err = f.File.Size()
		return err
	})
	return n, err
}

// Map implements vfs.Mapper if the file beneath does.
func (f *file) Map(size int64) (m vfs.Mapping, err error) {
	in, ok := f.File.(vfs.Mapper)
	if !ok {
		return nil, &fs.PathError{Op: "mmap", Path: f.Name(),
			Err: fmt.Errorf("%T: %w", f.File, errors.ErrUnsupported)}
	}
	err = f.fs.do(OpMap, f.Name(), func() (err error) {
		m, err = in.Map(size)
		return err
	})
	if err != nil {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
		return nil, err
	}
	return m, nil
}
