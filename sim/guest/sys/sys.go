//go:build wasip1

// Package sys is the machine that a simulated process runs on: its network, its disk, and the simulation's own clock.
// Everything else, the clocks and random numbers of Go's runtime included, reaches the simulation through WASI.
package sys

import (
	"syscall"
	"unsafe"
)

//go:wasmimport vigil now
func hostNow() int64

//go:wasmimport vigil report
func hostReport(p unsafe.Pointer, n uint32)

// Now returns the time of the simulation in nanoseconds. It does not depend on the machine's clock.
func Now() int64 { return hostNow() }

// Report gives a message to the simulation.
func Report(b []byte) { hostReport(bytesOf(b)) }

func bytesOf(b []byte) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b))
}

func textOf(s string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(s)), uint32(len(s))
}

// The errors of the simulation, by their negative number in results.
var errnos = [...]syscall.Errno{
	1: syscall.EIO, 2: syscall.ENOENT, 3: syscall.EEXIST, 4: syscall.ENOTDIR, 5: syscall.ENOSPC, 6: syscall.EBADF, 7: syscall.EINVAL,
	8: syscall.EAGAIN, 9: syscall.ECONNREFUSED, 10: syscall.ECONNRESET, 11: syscall.EADDRINUSE, 12: syscall.EISDIR, 13: syscall.ENOTEMPTY,
	14: syscall.EMFILE, 15: syscall.ENOMEM,
}

// locked is the number of vfs.ErrLocked, ended of io.EOF.
const (
	locked = -100
	ended  = -101
)

func errno(n int64) error {
	if n < 0 && int(-n) < len(errnos) {
		return errnos[-n]
	}
	return syscall.EIO
}
