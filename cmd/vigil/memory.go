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

// The headroom is how much the heap may grow between two garbage collections. With the usual growth
// by a factor, a small heap under load is collected many times a second, and a heap with large
// buffers grows by their size. Here the headroom follows the cost of a collection. A collection
// takes gcShare of the processor time of the process, and up to twice as much if it is expensive:
// the headroom grows with the square root of the cost, which wastes the least time and memory
// together.
const (
	gcShare = 0.0275
	// usualCost is the cost in nanoseconds at which collections take gcShare.
	usualCost = 7_500_000
	// The cost of a collection is about gcFixed nanoseconds, plus some for each byte of the heap
	// that may hold pointers: gcPerByte at first, and later the measured cost, between these
	// limits. A cost above the limits comes from other programs.
	gcFixed, gcPerByte        = 300_000, 1.0
	leastPerByte, mostPerByte = 0.3, 1.5
	// leastScan is how many bytes a collection must scan for its cost to be measured.
	leastScan = 1 << 20
	// leastHeadroom keeps a small process from collecting all the time. mostHeadroom limits the
	// memory of a large one, unless collections are so expensive that they must be rare: mostShare
	// is the share of the scanned bytes.
	leastHeadroom, mostHeadroom, mostShare = 4 << 20, 24 << 20, 0.5
	// usualCPU is the processor time in nanoseconds for each allocated byte, until it is measured.
	usualCPU = 25.0
)

// The growth in percent of the live heap is limited: the runtime cannot start a collection just in
// time, and a tiny heap needs no larger growth. A large heap has mostly keys and records, which a
// collection does not scan, so it needs no growth for them.
const (
	leastGrowth = 5
	mostGrowth  = 2000
)

const (
	// restInterval is the time between two checks whether work is over: whether the next collection
	// is more than restTime away.
	restInterval = 2 * time.Second
	restTime     = 40 * time.Second
	// restGrowth is the least growth of the heap before memory is returned to the system. restShare
	// is the same as a share of a large heap.
	restGrowth, restShare = 4 << 20, 1.0 / 16
	// restRatio is the least ratio of the time between two returns of memory to the time that one
	// takes. It keeps a large heap with little work from being collected all the time.
	restRatio = 50
)

// keepHeadroom adjusts the garbage collector to the heap, now and after each collection, and
// returns memory to the system when work is over. It does nothing if the operator has set GOGC.
func keepHeadroom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	h := &headroom{cpu: usualCPU, perByte: gcPerByte, bytes: leastHeadroom}
	h.adjustGrowth()
	go h.returnMemory()
}

// headroom adjusts the garbage collector.
type headroom struct {
	mu      sync.Mutex
	percent int
	// bytes is the headroom. cpu is the processor time in nanoseconds for each allocated byte,
	// perByte the cost of a collection for each byte that may hold pointers.
	bytes, cpu, perByte float64
	last                used // usage at the last collection
}

// used is the usage of the process since its start.
type used struct {
	cpu         time.Duration
	allocated   uint64
	marking     float64 // seconds that collections took
	collections uint64
}

// heap is the state of the heap.
type heap struct {
	live, scan, allocated uint64
	// size is the memory that the heap takes from the system.
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

// collected is an unreferenced object: each collection runs its finalizer.
type collected struct {
	h *headroom
	// The runtime combines objects below 16 bytes into blocks, which may stay reachable.
	_ [2]uint64
}

// adjustGrowth sets the growth of the heap until the next collection.
func (h *headroom) adjustGrowth() {
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
	h.setGrowth(growth(now.live, h.bytes))
	runtime.SetFinalizer(&collected{h: h}, func(c *collected) { c.h.adjustGrowth() })
}

// setGrowth sets the growth. A new percentage stops the world for a moment, so it skips small
// changes.
func (h *headroom) setGrowth(want int) {
	if diff := want - h.percent; diff > h.percent/10 || -diff > h.percent/10 {
		debug.SetGCPercent(want)
		h.percent = want
	}
}

// returnMemory returns memory to the system when work is over: the next collection may be minutes
// away.
func (h *headroom) returnMemory() {
	r := rest{free: freeMemory}
	before := readHeap() // the start counts as work
	for range time.Tick(restInterval) {
		now := readHeap()
		if over(now.allocated-before.allocated, h.present()) && r.tryFree(now.size) {
			now = readHeap()
			r.floor = now.size
		}
		before = now
	}
}

// freeMemory collects garbage and returns free memory to the system. The contents of a sync.Pool,
// such as the memory of large answers, survive one collection after their last use.
func freeMemory() {
	runtime.GC()
	debug.FreeOSMemory()
}

// rest decides when to return memory.
type rest struct {
	free  func()
	floor uint64 // the size of the heap after the last time
	next  time.Time
}

// tryFree returns memory to the system if the heap has grown enough since the last time, and that
// was long ago compared with how long it took.
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

// over reports whether work is over, from the bytes allocated in a restInterval.
func over(allocated uint64, headroom float64) bool {
	return float64(allocated)*float64(restTime/restInterval) < headroom
}

// cpuPerByte returns the processor time for each allocated byte, from the previous value and the
// usage since.
func cpuPerByte(before float64, cpu time.Duration, allocated uint64) float64 {
	if allocated < leastHeadroom/2 || cpu <= 0 {
		return before
	}
	return (before + float64(cpu)/float64(allocated)) / 2
}

// costPerByte returns the cost in nanoseconds of a collection for each byte that may hold pointers.
// It updates the previous value with the seconds that a number of collections of a number of bytes
// took since. It rises slowly: a collection that takes unusually long has mostly waited for other
// programs.
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

// headroomOf returns the headroom for a heap with a number of bytes that may hold pointers.
func headroomOf(scan uint64, perByte, cpu float64) float64 {
	most := max(mostHeadroom, mostShare*float64(scan))
	cost := gcFixed + perByte*float64(scan)
	share := gcShare * min(max(math.Sqrt(cost/usualCost), 1), 2)
	return min(max(cost/(share*cpu), leastHeadroom), most)
}

// growth returns the percentage by which a heap with a number of live bytes may grow. The runtime
// treats every heap as at least 4 MiB, and does not know the size of the heap before the first
// collection.
func growth(live uint64, headroom float64) int {
	return int(min(max(headroom*100/float64(max(live, 4<<20)), leastGrowth), mostGrowth))
}
