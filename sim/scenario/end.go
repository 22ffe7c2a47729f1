package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

const (
	// probeName is the machine of the probe, which ends after a write has succeeded.
	probeName = "probe"
	// stopPort is the port at which a process is requested to stop.
	stopPort = 2390
	// stopping bounds the time in which all processes must have stopped.
	stopping = 20 * time.Second
	// aftermath is how long faults have an effect after their end: a sync that a slow disk has
	// begun takes up to 3 s, and what a cut link has lost is sent again up to 1.5 s later.
	aftermath = 3 * time.Second
	// reconnecting is how long a client of the library may need to notice that its connections are
	// dead.
	reconnecting = 5 * time.Second
)

// mostWork is far above what machines do in a second. Measured were at most 900 runs, 170 dials by
// a process with many clients that lost all members, 11 by a member, and 300 lines while leadership
// moved again and again.
var mostWork = world.Work{Runs: 10_000, Dials: 500, Lines: 2_000}

// probe starts a process that writes without the library and over new connections until a write
// succeeds.
func (r *run) probe() {
	m := r.world.Machine(probeName, netip.AddrFrom4([4]byte{10, 0, 3, 1}))
	m.Start("probe", encode(setup.Probe{Users: r.plan.users(), Endpoints: endpoints(r.members)}))
}

// checkRecovery checks that writes succeed soon after the faults have ended: at the members, and of
// the library's clients.
func (r *run) checkRecovery() {
	if limit := r.plan.Faulty + 3*r.plan.election() + aftermath; r.probed == 0 || r.probed > limit {
		r.v.Add("the first write to the members after the faults had ended at %v was acknowledged at %v", r.plan.Faulty, r.probed)
	}
	first := time.Duration(-1)
	for n := range r.ops {
		o := &r.ops[n]
		if o.Outcome == check.Acked && o.Wrote() && o.Ret >= r.plan.Faulty &&
			(first < 0 || o.Ret < first) {
			first = o.Ret
		}
	}
	if limit := r.plan.Faulty + 3*r.plan.election() + reconnecting; first < 0 || first > limit {
		r.v.Add("the first write of a client after the faults had ended at %v was acknowledged at %v", r.plan.Faulty, first)
	}
}

// checkWork checks that no machine did much more in any second than it had to: such as one that
// tries again without a pause.
func (r *run) checkWork() {
	for _, m := range r.world.Machines() {
		if w := m.Most(); w.Runs > mostWork.Runs || w.Dials > mostWork.Dials ||
			w.Lines > mostWork.Lines {
			r.v.Add("in the busiest second %s was run %d times, dialed %d times, and logged %d lines; at most %d, %d and %d are expected",
				m.Name, w.Runs, w.Dials, w.Lines, mostWork.Runs, mostWork.Dials, mostWork.Lines)
		}
	}
}

// stopAll stops all members and clients in order. None may have goroutines left.
func (r *run) stopAll() {
	r.closing = true
	all := slices.Concat(r.members, r.clients)
	var c setup.Stop
	for _, m := range all {
		c.Addresses = append(c.Addresses, stopAddress(m))
	}
	r.world.Note(nil, "all processes stop")
	r.world.Machine("stop", netip.AddrFrom4([4]byte{10, 0, 3, 2})).Start("stop", encode(c))
	running := func() bool { return slices.ContainsFunc(all, (*world.Machine).Running) }
	if err := r.world.Run(r.world.Now()+stopping, func() bool { return !running() }); err != nil {
		r.v.Add("%v", err)
	}
	for _, m := range all {
		if m.Running() {
			r.v.Add("%s did not stop in %v", m.Name, stopping)
		}
	}
}

func stopAddress(m *world.Machine) string { return fmt.Sprintf("%v:%d", m.Addr, stopPort) }
