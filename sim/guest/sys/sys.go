//go:build wasip1

// Package sys is the machine that a simulated process runs on: its network, its disk, and the simulation's own clock.
// Everything else, the clocks and random numbers of Go's runtime included, reaches the simulation through WASI.
package sys

import (
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
