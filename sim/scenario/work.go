package scenario

import (
	"maps"
	"slices"
	"time"

	"vigil/sim/check"
	"vigil/sim/world"
)

// work is what clients reported of the kinds of work besides their operations.
type work struct {
	leases []check.LeaseOp
	locks  []check.LockOp
	alarms []check.AlarmOp
	// permits are what users may do, and accesses what they did.
	permits  []check.PermitSpan
	accesses []check.Access
	// sights are what the watches of users received.
	sights []check.Sight
	// promised is called with the time until which a lease certainly lives, if it is not nil.
	promised func(time.Duration)
	// rates are the rates of clocks that do not run like the others, and clocks what the fastest
	// one was.
	rates  map[*world.Machine]int64
	clocks check.Clocks
}

// cut removes what was not over before a time, at which the history may end. A revocation keeps an
// unknown outcome: it may explain the end of a lease.
func (w *work) cut(end time.Duration) {
	for n := range w.leases {
		if o := &w.leases[n]; o.Kind == check.Revoke && o.Ret >= end {
			o.Outcome = check.Unknown
		}
	}
	w.leases = slices.DeleteFunc(w.leases,
		func(o check.LeaseOp) bool { return o.Kind != check.Revoke && o.Ret >= end })
	w.locks = slices.DeleteFunc(w.locks, func(o check.LockOp) bool { return o.Ret >= end })
	w.accesses = slices.DeleteFunc(w.accesses, func(o check.Access) bool { return o.Ret >= end })
}

// judgeWork checks it, up to the last write: other processes may still work then.
func (r *run) judgeWork(h *check.History) {
	for n := range r.ops {
		if o := &r.ops[n]; r.final != 0 && o.Outcome == check.Acked && o.Wrote() &&
			o.Rev == r.final {
			r.work.cut(o.Call)
		}
	}
	r.v = append(r.v, check.CheckLeases(h, r.work.leases,
		check.LeaseTerms{Clocks: r.work.clocks, Election: r.plan.election(),
			Stable: r.plan.stable(), Late: 2 * time.Second})...)
	r.v = append(r.v, check.CheckLocks(h, r.work.locks)...)
	r.v = append(r.v, check.CheckPermits(h, r.work.accesses, r.work.permits)...)
	r.v = append(r.v, check.CheckSights(r.work.sights, r.work.permits, r.plan.stable())...)
	r.v = append(r.v, check.CheckAlarms(r.ops, r.work.leases, r.work.alarms)...)
}

// judgeErrors checks the errors of operations.
func (r *run) judgeErrors() {
	var causes [][]string
	if r.plan.full() {
		causes = append(causes, check.FullDisks)
	}
	if r.bitsFlipped {
		causes = append(causes, check.DamagedFiles)
	}
	if r.plan.users() {
		causes = append(causes, check.UserTokens)
	}
	r.v = append(r.v, check.CheckErrors(r.ops, causes...)...)
	r.v = append(r.v, check.CheckRevisions(r.ops, r.compactions)...)
}

// setRate makes the clock of a machine run faster or slower, and records the fastest clock.
func (r *run) setRate(m *world.Machine, ppm int64) {
	m.SetRate(ppm)
	if r.work.rates == nil {
		r.work.rates = map[*world.Machine]int64{}
	}
	r.work.rates[m] = ppm
	if ppm == 0 {
		delete(r.work.rates, m)
	}
	fastest := check.Pace{At: r.world.Now()}
	if all := slices.Collect(maps.Values(r.work.rates)); len(all) > 0 {
		fastest.PPM = slices.Max(all)
		if len(all) < len(r.members) {
			fastest.PPM = max(fastest.PPM, 0) // that of the others
		}
	}
	r.work.clocks = append(r.work.clocks, fastest)
}

// stable is the time after which a write must succeed when the last fault has ended.
func (p *Plan) stable() time.Duration { return p.Faulty + p.settling() }
