//go:build wasip1

// Package sys is the machine that a simulated process runs on: its network, its disk, and the
// simulation's own clock. Everything else, the clocks and random numbers of Go's runtime included,
// reaches the simulation through WASI.
package sys

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
	"unsafe"
)

//go:wasmimport vigil now
func hostNow() int64

//go:wasmimport vigil report
func hostReport(p unsafe.Pointer, n uint32)

//go:wasmimport vigil setup
func hostSetup(p unsafe.Pointer, n uint32) int64

// Setup returns what the process is, and its configuration.
func Setup() (role, config string) {
	b := make([]byte, hostSetup(nil, 0))
	hostSetup(bytesOf(b))
	role, config, _ = strings.Cut(string(b), "\x00")
	return role, config
}

//go:linkname getm runtime.getm
func getm() unsafe.Pointer

//go:linkname mrandinit runtime.mrandinit
func mrandinit(m unsafe.Pointer)

//go:linkname bootstrapRand runtime.bootstrapRand
func bootstrapRand() uint64

// startStack is the stack with which a goroutine begins. The runtime learns a size only from
// collections, of which a process has few: from 2 KiB, most stacks grow several times.
const startStack = 8 << 10

//go:linkname startingStackSize runtime.startingStackSize
var startingStackSize uint32

func init() { startingStackSize = startStack }

// Reseed gives the runtime random numbers of this process. All processes start with the memory of
// one, so that they would draw the same numbers otherwise.
func Reseed() {
	var b [2]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	for range binary.LittleEndian.Uint16(b[:]) / 4 {
		bootstrapRand()
	}
	mrandinit(getm())
}

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
