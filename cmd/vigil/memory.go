package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"golang.org/x/sys/unix"
)

// lockMemory keeps the pages of the process in memory from their first use on.
func lockMemory() error {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock memory: %w (give the process the capability IPC_LOCK, or raise ulimit -l)", err)
	}
	return nil
}

// headroom is how many bytes the heap may grow between two garbage collections. Under load a member
// keeps little and allocates much: with the usual growth by a factor, a small heap is collected many
// times a second, and one that holds large buffers takes their size again for garbage.
const headroom = 80 << 20

// The growth stays within these percentages of what is live: a large index is not collected all the
// time, and a tiny heap needs no more than this.
const (
	leastGrowth = 50
	mostGrowth  = 2000
)

// keepHeadroom adjusts the collector to what is live, now and after each collection. It leaves a
// process alone whose operator has set GOGC.
func keepHeadroom() {
	if os.Getenv("GOGC") == "" {
		new(collector).adjust()
	}
}

// collector is an object that nobody keeps, so each collection finds it and runs adjust.
type collector struct {
	percent int
	// The runtime puts objects below 16 bytes together in blocks, which may stay reachable.
	_ [2]uint64
}

func (c *collector) adjust() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	want := growth(live[0].Value.Uint64())
	// Setting it stops the world for a moment: not for a trifle.
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
