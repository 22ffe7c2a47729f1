package scenario

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"vigil/sim/world"
	"vigil/sim/world/abi"
)

// data is where a member has its files, historyDir its history.
const data, historyDir = "/data", "/data/history"

// hangs are the parts of a disk that can hang, by the name of the fault. Each stops the goroutines
// that use it.
var hangs = map[string]world.Hang{
	"writes of the log hang":     {Ops: writes, Prefix: "/data/wal"},
	"syncs of the log hang":      {Ops: syncs, Prefix: "/data/wal"},
	"writes of the history hang": {Ops: writes, Prefix: historyDir},
	"syncs of the history hang":  {Ops: syncs, Prefix: historyDir},
	"changes of names hang":      {Ops: names, Prefix: data},
	"reads hang": {Ops: []uint32{abi.Read, abi.Open, abi.List,
		abi.Stat}, Prefix: data},
	"the disk hangs": {Ops: slices.Concat(writes, syncs, names), Prefix: data},
}

// The operations that hang together.
var (
	writes = []uint32{abi.Write, abi.Create, abi.Preallocate, abi.Truncate}
	syncs  = []uint32{abi.Sync, abi.SyncDir}
	names  = []uint32{abi.Create, abi.Remove, abi.Rename, abi.Link, abi.MkdirAll, abi.SyncDir}
)

// hangNames are the names of these faults, in order.
func hangNames() []string { return slices.Sorted(maps.Keys(hangs)) }

// hangDisk returns the fault that lets a part of the disk of a member hang.
func hangDisk(name string) fault {
	return func(r *run, f Fault, _ *rand.Rand) func() {
		m := r.member(f.A)
		end := r.disk(m, world.DiskFaults{Hang: hangs[name]})
		r.hung[m]++
		return func() {
			end()
			r.hung[m]--
		}
	}
}

// shapeHangs lets each fault last for 30 s, while nothing else happens, and aims most of them at
// the leader.
func shapeHangs(p *Plan, rng *rand.Rand) {
	p.Workers, p.Watchers, p.Think = 2*p.Members, 2, 500*time.Millisecond
	p.Faults = nil
	all := hangNames()
	for at := firstFault + 4*time.Second; at+hangTime < p.Faulty; at += hangTime + hangRest {
		f := Fault{Kind: all[rng.IntN(len(all))], At: at, For: hangTime, A: theLeader,
			Seed: rng.Uint64()}
		if rng.IntN(4) == 0 {
			f.A = rng.IntN(p.Members)
		}
		p.Faults = append(p.Faults, f)
	}
}

// hangTime is how long a hang lasts in a plan of its profile, hangRest the time between two.
const hangTime, hangRest = 30 * time.Second, 12 * time.Second
