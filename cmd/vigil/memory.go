package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lockMemory locks the pages of the process in memory, from their first use.
func lockMemory() error {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("lock memory: %w (give the process the capability IPC_LOCK, or raise ulimit -l)", err)
	}
	return nil
}

// The heap may grow by the headroom between two garbage collections. With the usual growth by a
// factor, a small heap under load is collected many times a second, and a heap with large buffers
// grows by their size. So the headroom follows what a collection costs: it takes gcShare of the
// processor time of the process, and up to twice as much if it is expensive: the headroom grows
// with the root of the cost, which wastes least time and memory together.
const (
	gcShare = 0.0275
	// usualCost is a collection in nanoseconds that takes gcShare.
	usualCost = 7_500_000
	// A collection costs about so many nanoseconds, and some for each byte of the heap that may
	// hold pointers: so many at first, and as measured later, between these limits. What is above
	// them is the time of other programs.
	gcFixed, gcPerByte        = 300_000, 1.0
	leastPerByte, mostPerByte = 0.3, 1.5
	// leastScan is how many bytes a collection must look at for its cost to be measured.
	leastScan = 1 << 20
	// leastHeadroom keeps a small process from collecting all the time, mostHeadroom bounds the
	// memory of a large one, unless a collection is so expensive that it must not be frequent:
	// mostShare is the share of what it looks at.
	leastHeadroom, mostHeadroom, mostShare = 4 << 20, 24 << 20, 0.5
	// usualCPU is the processor time in nanoseconds for each allocated byte, before it was
	// measured.
	usualCPU = 25.0
)

// The growth in percent of the live heap is limited: the runtime cannot start a collection just in
// time, and a tiny heap needs no larger growth. Most of a large heap are keys and records, at which
// a collection does not look, so it needs no growth for them.
const (
	leastGrowth = 5
	mostGrowth  = 2000
)

const (
	// restInterval is how often it is checked whether work is over: when a collection is farther
	// away than restTime.
	restInterval = 2 * time.Second
	restTime     = 40 * time.Second
	// restGrowth is how much the heap grows, at least, before memory is returned to the system, and
	// restShare the same as a share of a large heap.
	restGrowth, restShare = 4 << 20, 1.0 / 16
	// restRatio is the least ratio of the time between two returns of memory to the time that one
	// takes, so that a large heap in which little work goes on is not collected all the time.
	restRatio = 50
)

// keepHeadroom adjusts the garbage collector to the heap, now and after each collection, and
// returns memory to the system when work is over, unless the operator has set GOGC.
func keepHeadroom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	h := &headroom{cpu: usualCPU, perByte: gcPerByte, bytes: leastHeadroom}
	h.adjust()
	go h.rest()
}

// headroom adjusts the garbage collector.
type headroom struct {
	mu      sync.Mutex
	percent int
	// bytes is the headroom, cpu the processor time in nanoseconds for each allocated byte, perByte
	// that of a collection for each byte that may hold pointers.
	bytes, cpu, perByte float64
	last                used // at the last collection
}

// used is what the process has used since its start.
type used struct {
	cpu         time.Duration
	allocated   uint64
	marking     float64 // seconds of collections
	collections uint64
}

// heap is the state of the heap.
type heap struct {
	live, scan, allocated uint64
	// size is what the heap takes from the system.
	size uint64

	marking     float64
	collections uint64
}

func readHeap() heap {
	m := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/total:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/cpu/classes/gc/mark/dedicated:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/assist:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"}}
	metrics.Read(m)
	v := func(i int) uint64 { return m[i].Value.Uint64() }
	f := func(i int) float64 { return m[i].Value.Float64() }
	return heap{live: v(0), scan: v(1), allocated: v(2), size: v(3) + v(4) + v(5),
		collections: v(6), marking: f(7) + f(8) + f(9)}
}

func readCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// collected is an unreferenced object, so that each collection runs its finalizer.
type collected struct {
	h *headroom
	// The runtime combines objects below 16 bytes in blocks, which may stay reachable.
	_ [2]uint64
}

// adjust sets the growth of the heap until the next collection.
func (h *headroom) adjust() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := readHeap()
	at := used{cpu: readCPU(), allocated: now.allocated, marking: now.marking,
		collections: now.collections}
	h.cpu = cpuPerByte(h.cpu, at.cpu-h.last.cpu, at.allocated-h.last.allocated)
	h.perByte = costPerByte(h.perByte, at.marking-h.last.marking,
		at.collections-h.last.collections, now.scan)
	h.last = at
	h.bytes = headroomOf(now.scan, h.perByte, h.cpu)
	h.set(growth(now.live, h.bytes))
	runtime.SetFinalizer(&collected{h: h}, func(c *collected) { c.h.adjust() })
}

// set sets the growth. A new percentage stops the world for a moment, so that small changes are
// skipped.
func (h *headroom) set(want int) {
	if diff := want - h.percent; diff > h.percent/10 || -diff > h.percent/10 {
		debug.SetGCPercent(want)
		h.percent = want
	}
}

// rest returns memory to the system when work is over: the next collection may be minutes away
// then.
func (h *headroom) rest() {
	r := rest{free: freeMemory}
	before := readHeap() // the start is work, too
	for range time.Tick(restInterval) {
		now := readHeap()
		if over(now.allocated-before.allocated, h.present()) && r.tryFree(now.size) {
			now = readHeap()
			r.floor = now.size
		}
		before = now
	}
}

// freeMemory collects garbage and returns free memory to the system. What a sync.Pool keeps, such
// as the memory of large answers, survives one collection after its last use.
func freeMemory() {
	runtime.GC()
	debug.FreeOSMemory()
}

// rest decides when memory is returned.
type rest struct {
	free  func()
	floor uint64 // the size of the heap after the last time
	next  time.Time
}

// tryFree returns memory to the system if a heap of that size has grown enough and the last time is
// long ago, compared with what it took.
func (r *rest) tryFree(size uint64) bool {
	began := time.Now()
	if size <= r.floor+max(restGrowth, uint64(restShare*float64(r.floor))) || began.Before(r.next) {
		return false
	}
	r.free()
	ended := time.Now()
	r.next = ended.Add(restRatio * ended.Sub(began))
	return true
}

func (h *headroom) present() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bytes
}

// over reports whether work is over, by what was allocated in a restInterval.
func over(allocated uint64, headroom float64) bool {
	return float64(allocated)*float64(restTime/restInterval) < headroom
}

// cpuPerByte returns the processor time for each allocated byte, from what it was before and what
// was used since.
func cpuPerByte(before float64, cpu time.Duration, allocated uint64) float64 {
	if allocated < leastHeadroom/2 || cpu <= 0 {
		return before
	}
	return (before + float64(cpu)/float64(allocated)) / 2
}

// costPerByte returns the cost of a collection for each byte that may hold pointers, in
// nanoseconds, from what it was before and the seconds that so many collections of so many bytes
// took since. It rises slowly: a collection that takes longer than others has mostly waited for
// other programs.
func costPerByte(before, seconds float64, collections, scan uint64) float64 {
	if collections == 0 || scan < leastScan {
		return before
	}
	measured := min(max((seconds*1e9/float64(collections)-gcFixed)/float64(scan),
		leastPerByte), mostPerByte)
	weight := 0.5
	if measured > before {
		weight = 1.0 / 32
	}
	return before + weight*(measured-before)
}

// headroomOf returns the headroom of a heap with so many bytes that may hold pointers.
func headroomOf(scan uint64, perByte, cpu float64) float64 {
	most := max(mostHeadroom, mostShare*float64(scan))
	cost := gcFixed + perByte*float64(scan)
	share := gcShare * min(max(math.Sqrt(cost/usualCost), 1), 2)
	return min(max(cost/(share*cpu), leastHeadroom), most)
}

// growth returns the percentage by which a heap with so many live bytes may grow. The runtime takes
// a heap for one of 4 MiB at least, and before the first collection it does not know how large the
// heap is.
func growth(live uint64, headroom float64) int {
	return int(min(max(headroom*100/float64(max(live, 4<<20)), leastGrowth), mostGrowth))
}
