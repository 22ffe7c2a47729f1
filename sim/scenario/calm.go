package scenario

import (
	"maps"
	"slices"
	"strings"
	"time"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

const (
	// longestAnswer bounds the time of an operation, and longestDelay that in which a member, a
	// mirror or a watcher receives what is known, while nothing disturbs the cluster.
	longestAnswer, longestDelay = time.Second, 2 * time.Second
	// longestReconnect is how long a fault that is over may leave a client without a connection: an
	// attempt to connect that a power failure has cut takes 10 s, and the pause after it up to 3.6
	// s.
	longestReconnect = 14 * time.Second
	// spareSilence is how much longer than two intervals of progress notifications a watcher may be
	// silent then: some watchers end their watch and begin another one every few seconds.
	spareSilence = 8 * time.Second
)

// calm follows when nothing disturbs the cluster.
type calm struct {
	active int           // faults
	from   time.Duration // when the cluster has settled after the last disturbance
	// members are their slots if nothing has disturbed them since, otherwise nil.
	members map[int]bool
	spans   []check.Span
}

// disturb notes that something changes which may disturb the cluster: a fault begins or ends, a
// process of a member starts or ends, or an operator begins or ends to change the members. It is
// called after the change.
func (r *run) disturb() {
	c, now := &r.calm, r.world.Now()
	if c.members != nil && c.from < now {
		c.spans = append(c.spans,
			check.Span{From: c.from, To: now, Members: c.members,
				Partial: len(c.members) < len(r.members), Change: 2 * r.plan.election()})
	}
	settled := c.members != nil && c.from <= now
	c.members = r.undisturbed()
	if c.from = now + r.plan.settling(); settled && r.hanging() != nil {
		// The others have another leader soon.
		c.from = now + 2*r.plan.election()
	}
}

// hanging returns the only member a part of whose disk hangs, if that is all that disturbs the
// cluster.
func (r *run) hanging() (one *world.Machine) {
	n := 0
	for _, m := range r.members {
		if r.hung[m] > 0 {
			one = m
		}
		n += r.hung[m]
	}
	if n != 1 || r.calm.active != 1 || len(r.members) < 3 {
		return nil
	}
	return one
}

// undisturbed returns the slots of the members, or nil if they are disturbed now or do not all run
// and vote. A member whose disk hangs is left out: it may not answer, but the others must.
func (r *run) undisturbed() map[int]bool {
	hangs := r.hanging()
	if r.calm.active > 0 && hangs == nil || r.changing != nil || r.flipped() != nil {
		return nil
	}
	slots := map[int]bool{}
	for n, p := range r.places {
		if !slices.Contains(r.members, p.Machine) {
			continue
		}
		if !p.Running() || p.learner > 0 {
			return nil
		}
		if p.Machine != hangs {
			slots[n] = true
		}
	}
	return slots
}

// settling is how long it takes after a disturbance until a write must succeed: an election, and
// some more time for a member that starts then, or a connection that was silent.
func (p *Plan) settling() time.Duration { return 3*p.election() + 5*time.Second }

// full reports whether writes may be refused for want of space.
func (p *Plan) full() bool {
	return slices.ContainsFunc(p.Faults,
		func(f Fault) bool { return strings.HasPrefix(f.Kind, "full disk") }) ||
		slices.Contains(p.Work, setup.Quota) || slices.Contains(p.Work, "alarms")
}

// judgeCalm checks that the cluster works as well as it can while nothing disturbs it.
func (r *run) judgeCalm(h *check.History) {
	p := &check.Prompt{Spans: r.calm.spans, Answer: longestAnswer, Delay: longestDelay,
		Reconnect: longestReconnect, Silence: 2*r.plan.progress() + spareSilence,
		Full: r.plan.full()}
	r.v = append(r.v, check.CheckAnswers(r.ops, p)...)
	r.v = append(r.v, check.CheckLeaseAnswers(r.work.leases, p)...)
	bare := map[*check.SharedRecord]bool{} // which may not read for some time
	for _, w := range r.numbered {
		bare[w] = true
	}
	for _, name := range slices.Sorted(maps.Keys(r.watchers)) {
		w := r.watchers[name]
		if bare[w] {
			continue
		}
		member := slices.IndexFunc(r.places,
			func(p *place) bool { return endpoint(p.Machine) == r.only[name] })
		r.v = append(r.v, check.CheckDelivery(h, &w.R, member, p)...)
	}
}

// moments returns when revisions were known to exist, by answers and by what watchers received.
func (r *run) moments() (out []check.Moment) {
	add := func(at time.Duration, rev int64) { out = append(out, check.Moment{At: at, Rev: rev}) }
	for n := range r.ops {
		if o := &r.ops[n]; o.Outcome == check.Acked {
			add(o.Ret, o.Rev)
		}
	}
	for n := range r.work.leases {
		if o := &r.work.leases[n]; o.Outcome == check.Acked {
			add(o.Ret, o.Rev)
		}
	}
	for n := range r.work.locks {
		if o := &r.work.locks[n]; o.Outcome == check.Acked {
			add(o.Ret, max(o.Rev, o.Fence))
		}
	}
	for _, w := range r.watchers {
		for _, m := range w.R.Messages {
			if !m.Compacted {
				add(m.At, m.Last())
			}
		}
	}
	return out
}

// idleTime is a time in which processes are run no more than idleRuns says while nothing disturbs
// the cluster.
const idleTime = 5 // seconds

// idleRuns is above how often all processes are run in a second then. Measured were up to 1,300 in
// a mixed plan of three members with a crowd of watchers, 1,600 in a second with a quota, 2,800
// with five members and much work, and 3,000 to 6,000 while two members, whose logs contradicted
// each other, exchanged messages without a pause.
func (p *Plan) idleRuns() int { return 3000 + 400*p.Places }

// watchWork counts how often processes are run in each second, until a time.
func (r *run) watchWork(until time.Duration) {
	before := r.world.Switches()
	var next func()
	next = func() {
		n := r.world.Switches()
		r.busy = append(r.busy, int(n-before))
		if before = n; r.world.Now() < until {
			r.world.After(time.Second, next)
		}
	}
	r.world.After(time.Second, next)
}

// checkIdle checks that no few seconds without a disturbance have much more work than their
// operations and heartbeats need: members that exchange messages without a pause, and without
// progress, have no other effect.
func (r *run) checkIdle() {
	for n := idleTime; n <= len(r.busy); n++ {
		runs := 0
		for _, x := range r.busy[n-idleTime : n] {
			runs += x
		}
		from, to := time.Duration(n-idleTime)*time.Second, time.Duration(n)*time.Second
		inside := func(s check.Span) bool { return s.From <= from && to <= s.To }
		if most := idleTime * r.plan.idleRuns(); runs > most &&
			slices.ContainsFunc(r.calm.spans, inside) {
			r.v.Add("busy without a fault: processes were run %d times from %v to %v; at most %d are expected", runs, from, to, most)
			return
		}
	}
}
