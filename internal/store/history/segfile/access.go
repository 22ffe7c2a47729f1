package segfile

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"
)

// ErrClosed is the error of a read after the log was closed.
var ErrClosed = errors.New("history: closed")

// Access is a period of reading mapped memory by one goroutine: Begin, then To for each file, and
// End in a deferred function with the result of recover.
type Access struct {
	Resident bool // read only bytes that are known to be in memory

	src      *File // the file that is read
	borrowed bool  // src is not to be released
	old      bool
}

// Begin turns faults of the memory into panics of this goroutine.
func (a *Access) Begin() { a.old = debug.SetPanicOnFault(true) }

// To makes s the file that is read: it takes a reference to s and releases the file before. Its
// error is ErrClosed.
func (a *Access) To(s *File) error {
	if a.src == s {
		return nil
	}
	if !s.Acquire() {
		return ErrClosed
	}
	if a.src != nil {
		a.src.Release()
	}
	a.src = s
	return nil
}

// Borrow makes s the only file that is read, with a reference of the caller.
func (a *Access) Borrow(s *File) { a.src, a.borrowed = s, true }

// End returns err, or the error for a fault of the mapping. It continues any other panic.
func (a *Access) End(p any, err error) error {
	debug.SetPanicOnFault(a.old)
	src := a.src
	if src != nil && !a.borrowed {
		defer src.Release()
	}
	a.src = nil
	if p == nil {
		return err
	}
	if off, ok := faultOffset(p, src); ok {
		return fmt.Errorf("history: read %s at offset %d: the disk did not deliver the page: %w",
			src.path, off, syscall.EIO)
	}
	panic(p)
}

// faultOffset returns the offset in a file whose mapping has caused a panic.
func faultOffset(p any, s *File) (off int64, ok bool) {
	f, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || s == nil {
		return 0, false
	}
	return s.offsetOf(f.Addr())
}

// offsetOf returns the offset in the file of an address in the mapping.
func (s *File) offsetOf(addr uintptr) (int64, bool) {
	if len(s.data) == 0 {
		return 0, false
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(s.data)))
	if addr < base || addr-base >= uintptr(len(s.data)) {
		return 0, false
	}
	return int64(addr - base), true
}

// Guard calls fn, which reads mapped memory.
func Guard(fn func(*Access) error) (err error) {
	var a Access
	a.Begin()
	defer func() { err = a.End(recover(), err) }()
	return fn(&a)
}
