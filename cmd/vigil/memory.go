package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"golang.org/x/sys/unix"
)

// lockMemory locks the pages of the process in memory, from their first use.
func lockMemory() error {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock memory: %w (give the process the capability IPC_LOCK, or raise ulimit -l)", err)
	}
	return nil
}

// headroom is the number of bytes by which the heap may grow between two garbage collections. Under load a member allocates much
// and keeps little: with the usual growth by a factor, a small heap is collected many times a second, and a heap with large
// buffers grows by their size.
const headroom = 80 << 20

// The growth in percent of the live heap is limited: a large index is not collected continuously, and a tiny heap needs no larger
// growth.
const (
	leastGrowth = 50
	mostGrowth  = 2000
)

// keepHeadroom adjusts the garbage collector to the live heap, now and after each collection, unless the operator has set GOGC.
func keepHeadroom() {
	if os.Getenv("GOGC") == "" {
		new(collector).adjust()
	}
}

// collector is an unreferenced object, so that each collection runs its finalizer.
type collector struct {
	percent int
	// The runtime combines objects below 16 bytes in blocks, which may stay reachable.
	_ [2]uint64
}

func (c *collector) adjust() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	want := growth(live[0].Value.Uint64())
	// A new percentage stops the world for a moment, so that small changes are skipped.
	if diff := want - c.percent; diff > c.percent/10 || -diff > c.percent/10 {
		debug.SetGCPercent(want)
		c.percent = want
	}
	runtime.SetFinalizer(c, (*collector).adjust)
}

// growth returns the percentage by which a heap with so many live bytes may grow.
func growth(live uint64) int {
	return int(min(max(headroom*100/max(live, 1), leastGrowth), mostGrowth))
}
