package scenario

import (
	"math/rand/v2"
	"time"

	"vigil/sim/check"
	"vigil/sim/world"
)

// hitExpiry hits the leader just before leases end that were granted or kept alive, as far as
// clients know: it is paused, killed, cut off, or its wall clock jumps. One hit follows the other.
func hitExpiry(r *run, _ Fault, rng *rand.Rand) func() {
	on, pending := true, false
	undo := func() {}
	r.work.promised = func(end time.Duration) {
		if pending {
			return
		}
		pending = true
		r.world.At(end-time.Duration(rng.Int64N(int64(400*time.Millisecond))), func() {
			if !on {
				return
			}
			undo = r.hit(r.leader(), rng)
			// In a third of the cases another leader may end the lease meanwhile, while calls wait
			// at this one.
			longest := []int{2500, 2500, 8000}[rng.IntN(3)]
			r.world.After(time.Duration(100+rng.IntN(longest))*time.Millisecond, func() {
				undo()
				undo, pending = func() {}, false
			})
		})
	}
	return func() {
		on, r.work.promised = false, nil
		undo()
		undo = func() {}
	}
}

// hit begins one of the faults by which a leader misses the end of a lease, and returns a function
// that ends it.
func (r *run) hit(m *world.Machine, rng *rand.Rand) func() {
	switch rng.IntN(4) {
	case 0:
		m.Pause()
		return m.Resume
	case 1:
		r.stop(m, m.Kill)
		return func() { r.restart(m) }
	case 2:
		return r.cut(m, r.members, true, true)
	}
	d := time.Duration(rng.Int64N(int64(time.Hour))) - 30*time.Minute
	m.Jump(d)
	return func() { m.Jump(-d) }
}

// addLease adds a call about a lease.
func (w *work) addLease(o check.LeaseOp) {
	w.leases = append(w.leases, o)
	if w.promised != nil && o.Outcome == check.Acked && !o.Gone &&
		(o.Kind == check.Grant || o.Kind == check.KeepAlive) {
		w.promised(o.Call + o.TTL)
	}
}
