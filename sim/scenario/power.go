package scenario

import (
	"math/rand/v2"
	"slices"
	"time"

	"vigil/sim/world"
)

// failSyncing lets all members lose power while their disks are slow, again and again, just after a
// write was acknowledged: much of what they wrote is not synced. The leader is back only when the
// others have elected one of them, and have lost what it alone has.
func failSyncing(r *run, _ Fault, rng *rand.Rand) func() {
	over, round, healthy := false, 0, func() {}
	var begin func()
	// again restarts the former leader and begins the next round, once.
	again := func(n int, old *world.Machine) {
		if over || n != round {
			return
		}
		round++
		r.elected = nil
		r.restart(old)
		r.world.After(time.Duration(rng.Int64N(int64(500*time.Millisecond))), begin)
	}
	fail := func() {
		if over {
			return
		}
		old, n := r.leader(), round
		healthy()
		for _, m := range r.members {
			r.stop(m, m.PowerOff)
		}
		for _, m := range r.members {
			if m != old {
				r.world.After(time.Duration(rng.Int64N(int64(100*time.Millisecond))),
					func() { r.restart(m) })
			}
		}
		r.elected = func(*world.Machine) { again(n, old) }
		r.world.After(7*electionTimeout, func() { again(n, old) })
	}
	begin = func() {
		if over {
			return
		}
		healthy = r.slowDisks(world.DiskFaults{Slow: time.Duration(100+
			rng.IntN(900)) * time.Millisecond})
		if rng.IntN(4) > 0 {
			// What the leader has synced the others have only written.
			r.leader().SetDiskFaults(world.DiskFaults{})
		}
		r.world.After(300*time.Millisecond+
			time.Duration(rng.Int64N(int64(600*time.Millisecond))), func() {
			r.wrote = func() {
				r.wrote = nil
				r.world.After(time.Duration(rng.Int64N(int64(10*time.Millisecond))), fail)
			}
		})
	}
	begin()
	return func() {
		over, r.elected, r.wrote = true, nil, nil
		healthy()
		for _, m := range r.members {
			r.restart(m)
		}
	}
}

// failInTurn lets one follower after the other lose power while a sync of its disk is under way,
// each for a moment, so that the others write on.
func failInTurn(r *run, _ Fault, rng *rand.Rand) func() {
	over, healthy := false, func() {}
	var next func()
	next = func() {
		if over {
			return
		}
		m := r.follower(rng.IntN(len(r.members)))
		healthy = r.disk(m, world.DiskFaults{Slow: 2 * time.Second})
		r.world.After(time.Duration(100+rng.IntN(400))*time.Millisecond, func() {
			if over {
				return
			}
			healthy()
			r.stop(m, m.PowerOff)
			r.world.After(50*time.Millisecond, func() { r.restart(m) })
			r.world.After(time.Duration(400+rng.IntN(600))*time.Millisecond, next)
		})
	}
	next()
	return func() {
		over = true
		healthy()
		for _, m := range r.members {
			r.restart(m)
		}
	}
}

// slowDisks slows the disks of all members, and returns a function that undoes it.
func (r *run) slowDisks(f world.DiskFaults) func() {
	slow := slices.Clone(r.members)
	for _, m := range slow {
		m.SetDiskFaults(f)
	}
	return func() {
		for _, m := range slow {
			m.SetDiskFaults(world.DiskFaults{})
		}
	}
}

// failSyncsThenPower lets syncs of a member fail until it ends, lets it start again on a sound
// disk, and then lose power: what the failed syncs left out must be written again before it counts.
func failSyncsThenPower(r *run, f Fault, rng *rand.Rand) func() {
	m, over := r.member(f.A), false
	sound := r.disk(m, world.DiskFaults{SyncFails: 1})
	step := func(at time.Duration, do func()) {
		r.world.After(at, func() {
			if !over {
				do()
			}
		})
	}
	step(time.Duration(rng.Int64N(int64(f.For/4))), func() {
		sound()
		r.restart(m)
	})
	step(f.For/3+time.Duration(rng.Int64N(int64(f.For/2))), func() {
		r.stop(m, m.PowerOff)
		r.restart(m)
	})
	return func() {
		over = true
		sound()
		r.restart(m)
	}
}
