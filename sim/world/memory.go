package world

import (
	"slices"
	"sync"
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// reservation is the memory of a process: address space for all that it may use, so that it grows
// without a copy. The kernel provides pages when they are first used.
type reservation struct {
	bytes []byte
	// used is how much processes have had of it: what follows is zero.
	used int
}

// spare is the memory of processes that have ended, for other ones: to clear it takes less time
// than to get pages from the kernel.
var spare struct {
	sync.Mutex
	all []*reservation
}

const (
	// maxSpare bounds the number of spare reservations, spareBytes what a process may have used of
	// each.
	maxSpare   = 8
	spareBytes = 128 << 20
)

// reserve makes the memory of a process, which has parts, in order, and is zero otherwise.
func reserve(limit uint64, parts []segmentOfData) *reservation {
	r := takeSpare(int(limit))
	if r == nil {
		b, err := syscall.Mmap(-1, 0, int(limit), syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
		if err != nil {
			panic(err) // wazero has no other way to report it
		}
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE) // a kernel without such pages only is slower
		r = &reservation{bytes: b}
	}
	done := 0
	for _, p := range parts {
		r.clear(done, int(p.at))
		done = int(p.at) + copy(r.bytes[p.at:], p.bytes)
	}
	r.clear(done, r.used)
	r.used = done
	return r
}

// clear clears what processes may have changed between two places.
func (r *reservation) clear(from, to int) {
	if to = min(to, r.used); from < to {
		clear(r.bytes[from:to])
	}
}

// takeSpare returns a spare reservation, or nil.
func takeSpare(size int) *reservation {
	spare.Lock()
	defer spare.Unlock()
	n := slices.IndexFunc(spare.all, func(r *reservation) bool { return len(r.bytes) == size })
	if n < 0 {
		return nil
	}
	r := spare.all[n]
	spare.all = slices.Delete(spare.all, n, n+1)
	return r
}

// Reallocate implements experimental.LinearMemory.
func (r *reservation) Reallocate(size uint64) []byte {
	if size > uint64(len(r.bytes)) {
		return nil
	}
	r.used = max(r.used, int(size))
	return r.bytes[:size]
}

// Free implements experimental.LinearMemory.
func (r *reservation) Free() {
	spare.Lock()
	keep := len(spare.all) < maxSpare && r.used <= spareBytes
	if keep {
		spare.all = append(spare.all, r)
	}
	spare.Unlock()
	if !keep {
		_ = syscall.Munmap(r.bytes)
	}
}

var _ experimental.LinearMemory = (*reservation)(nil)
