package chaos

import (
	"time"

	"vigil/test/link"
)

// packetFaults are those of single packets, interfaces and cables. They need a switch.
var packetFaults = []fault{
	{"the cable of the leader is pulled", true, func(r *run) {
		r.wire.Unplug(r.leader().node)
		r.recover()
		r.hold(time.Second)
	}},
	{"the cable of a follower is pulled", false, func(r *run) {
		r.wire.Unplug(r.follower().node)
		r.recover()
		r.hold(4 * time.Second)
	}},
	{"all cables are pulled", false, func(r *run) {
		for _, s := range r.slots {
			r.wire.Unplug(s.node)
		}
		r.hold(3 * time.Second)
	}},
	{"cables are loose", false, func(r *run) {
		for range 10 {
			r.wire.Unplug(r.slots[r.rng.IntN(len(r.slots))].node)
			r.hold(r.moment())
			r.net.Heal()
			r.hold(r.moment())
		}
	}},
	{"the interface of the leader is disabled", false, func(r *run) {
		r.wire.Disable(r.leader().node)
		r.recover()
		r.hold(time.Second)
	}},
	{"a member is unreachable", false, func(r *run) {
		s := r.slots[r.rng.IntN(len(r.slots))]
		refuse := link.Rule{Refuse: true}
		r.cut(s, r.rng.IntN(2) == 0, true, refuse)
		r.wire.Set(outside, s.node, refuse)
		r.recover()
		r.hold(2 * time.Second)
	}},
	{"no member and no client hears the leader", false, func(r *run) {
		lead := r.leader()
		r.cut(lead, true, false, link.Rule{Stall: true})
		r.wire.Set(lead.node, outside, link.Rule{Stall: true})
		r.recover()
		r.hold(time.Second)
	}},
	{"links flap", false, func(r *run) {
		for range 10 {
			a := r.slots[r.rng.IntN(len(r.slots))]
			b := r.others(a)[r.rng.IntN(len(r.slots)-1)]
			r.net.Set(a.node, b.node, link.Rule{Stall: true})
			r.net.Set(b.node, a.node, link.Rule{Stall: r.rng.IntN(2) == 0})
			r.hold(r.moment())
			r.net.Heal()
			r.hold(r.moment())
		}
	}},
	{"packets are lost, doubled and reordered", false, func(r *run) {
		bad := link.Rule{Loss: 0.02 + 0.1*r.rng.Float64(), Twice: 0.1,
			Jitter: 20 * time.Millisecond}
		for _, s := range r.slots {
			r.cut(s, true, true, bad)
			r.wire.Set(outside, s.node, bad)
			r.wire.Set(s.node, outside, bad)
		}
		r.hold(4 * time.Second)
	}},
	{"large packets to a follower vanish", false, func(r *run) {
		r.cut(r.follower(), false, true, link.Rule{Largest: 600})
		r.recover()
		r.hold(4 * time.Second)
	}},
	{"large packets of the leader vanish", false, func(r *run) {
		r.cut(r.leader(), true, false, link.Rule{Largest: 600})
		r.hold(4 * time.Second)
	}},
}

// moment is a short time.
func (r *run) moment() time.Duration {
	return 50*time.Millisecond + time.Duration(r.rng.Int64N(int64(400*time.Millisecond)))
}
