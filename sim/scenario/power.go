package scenario

import (
	"math/rand/v2"
	"time"

	"vigil/sim/world"
)

// failSyncing lets all members lose power while their disks are slow: much of what they wrote is not synced. The leader
// starts last, so that the others may elect a leader without it.
func failSyncing(r *run, f Fault, rng *rand.Rand) func() {
	slow := world.DiskFaults{Slow: time.Duration(100+rng.IntN(900)) * time.Millisecond}
	for _, m := range r.members {
		m.SetDiskFaults(slow)
	}
	healthy := func() {
		for _, m := range r.members {
			m.SetDiskFaults(world.DiskFaults{})
		}
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
