package scenario

import (
	"math/rand/v2"
	"time"

	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

// failStarting lets members lose power or be killed in the first moments of most of their starts,
// and begins with one: that of a member that joins in place of another one, or of a member that
// loses power.
func failStarting(r *run, f Fault, rng *rand.Rand, slow, join bool) func() {
	over := false
	// With a slow disk, most of a start is spent between two of its steps.
	first, healthy := 60*time.Millisecond, func() {}
	if slow {
		first = time.Second
		healthy = r.slowDisks(world.DiskFaults{Slow: 100 * time.Millisecond})
	}
	r.starting = func(m *world.Machine) {
		if rng.IntN(4) == 0 {
			return
		}
		start, kill := m.Starts(), []func(){m.Kill, m.PowerOff, m.PowerOff}[rng.IntN(3)]
		r.world.After(time.Duration(rng.Int64N(int64(first))), func() {
			if over || m.Starts() != start {
				return
			}
			r.stop(m, kill)
			r.world.After(time.Duration(rng.Int64N(int64(300*time.Millisecond))),
				func() { r.restart(m) })
		})
	}
	if join {
		r.change([]string{setup.Replace, setup.ReplaceBy}[rng.IntN(2)], f, rng)
	} else {
		m := r.member(f.A)
		r.stop(m, m.PowerOff)
		r.restart(m)
	}
	return func() {
		over, r.starting = true, nil
		healthy()
		for _, m := range r.members {
			r.restart(m)
		}
	}
}
