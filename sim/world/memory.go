package world

import (
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// reservation is the memory of a process: address space for all that it may use, so that it grows without a copy. The
// kernel provides pages when they are first used.
type reservation []byte

// reserve makes the memory of a process. It implements experimental.MemoryAllocatorFunc.
func reserve(_, limit uint64) experimental.LinearMemory {
	b, err := syscall.Mmap(-1, 0, int(limit), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		panic(err) // wazero has no other way to report it
	}
	_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) // a kernel without such pages only is slower
	return reservation(b)
}

// Reallocate implements experimental.LinearMemory.
func (r reservation) Reallocate(size uint64) []byte {
	if size > uint64(len(r)) {
		return nil
	}
	return r[:size]
}

// Free implements experimental.LinearMemory.
func (r reservation) Free() { _ = syscall.Munmap(r) }
