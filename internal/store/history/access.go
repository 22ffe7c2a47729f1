package history

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"
)

// access is a stretch of reading mapped memory: begin, switch src as need be, end in a deferred
// function with what recover returned there.
type access struct {
	src      *sealed // the reference held
	borrowed bool    // src is not to be released
	old      bool
}

func (a *access) begin() { a.old = debug.SetPanicOnFault(true) }

// to makes s the source that is read, taking a reference and giving back the one before.
func (a *access) to(s *sealed) error {
	if a.src == s {
		return nil
	}
	if !s.acquire() {
		return ErrClosed
	}
	if a.src != nil {
		a.src.release()
	}
	a.src = s
	return nil
}

// end returns err, or the error that a fault of the mapping amounts to. Any other panic goes on.
func (a *access) end(p any, err error) error {
	debug.SetPanicOnFault(a.old)
	src := a.src
	if src != nil && !a.borrowed {
		defer src.release()
	}
	a.src = nil
	if p == nil {
		return err
	}
	if f, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	}); ok && src != nil {
		if off, ok := src.offsetOf(f.Addr()); ok {
			return fmt.Errorf("history: read %s at offset %d: the disk did not deliver the page: %w", src.path, off, syscall.EIO)
		}
	}
	panic(p)
}

// offsetOf returns the offset in the file of an address in the mapping.
func (s *sealed) offsetOf(addr uintptr) (int64, bool) {
	if len(s.data) == 0 {
		return 0, false
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(s.data)))
	if addr < base || addr-base >= uintptr(len(s.data)) {
		return 0, false
	}
	return int64(addr - base), true
}

// guard runs fn, which reads mapped memory.
func guard(fn func(*access) error) (err error) {
	var a access
	a.begin()
	defer func() { err = a.end(recover(), err) }()
	return fn(&a)
}
