package scenario

import (
	"math/rand/v2"
	"slices"
	"time"

	"vigil/sim/world"
)

// failSyncing lets all members lose power while their disks are slow: much of what they wrote is not synced. The leader
// starts last, so that the others may elect a leader without it.
func failSyncing(r *run, f Fault, rng *rand.Rand) func() {
	healthy := r.slowDisks(world.DiskFaults{Slow: time.Duration(100+rng.IntN(900)) * time.Millisecond})
	if rng.IntN(2) == 0 {
		// What the leader has synced the others have only written.
		r.leader().SetDiskFaults(world.DiskFaults{})
	}
	over := false
	r.world.After(f.For/3, func() {
		if over {
			return
		}
		leader := r.leader()
		healthy()
		for _, m := range r.members {
			r.stop(m, m.PowerOff)
		}
		for _, m := range r.members {
			if m != leader {
				r.world.After(time.Duration(rng.Int64N(int64(100*time.Millisecond))), func() { r.restart(m) })
			}
		}
	})
	return func() {
		over = true
		healthy()
		for _, m := range r.members {
			r.restart(m)
		}
	}
}

// failInTurn lets one member after the other lose power while its disk is slow, each for a moment, so that others write on.
func failInTurn(r *run, _ Fault, rng *rand.Rand) func() {
	over, healthy := false, r.slowDisks(world.DiskFaults{Slow: time.Duration(50+rng.IntN(150)) * time.Millisecond})
	var next func()
	next = func() {
		if over {
			return
		}
		m := r.members[rng.IntN(len(r.members))]
		r.stop(m, m.PowerOff)
		r.world.After(50*time.Millisecond, func() { r.restart(m) })
		r.world.After(time.Duration(500+rng.IntN(1000))*time.Millisecond, next)
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

// failSyncsThenPower lets syncs of a member fail until it ends, lets it start again on a sound disk, and then lose power: what the
// failed syncs left out must be written again before it counts.
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
