package scenario

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

// patience is how long an operator repeats a change that fails.
const patience = 25 * time.Second

// place is a machine for a member.
type place struct {
	*world.Machine
	// id is that of its member, 0 before a list of members was seen.
	id uint64
	// former are the members that it had before.
	former []uint64
	// ports are those at which it listens for other members. The first one is known to them.
	ports []int
	// initial is the list of members with which the member joins; empty if it is one of the first.
	// A member whose first start fails must be started with the members of that moment, so the list
	// is that of the last report, or that of the refusal. given is the list at the last start.
	initial, given string
	// removed is set when its member was removed, started when the member was started at all. A
	// place without a member, or whose member ended because it was removed, is empty.
	removed, started, empty bool
	// flipped is set when bits of its files have flipped, and over when the member is to be
	// replaced therefore.
	flipped, over bool
	// alone is set when the member could not join because no other one answered, outdated when it
	// could not because the members have changed since the list with which it was started. It ends
	// then.
	alone, outdated bool
	// ended is when its member ended because it was removed, as it said, before a list confirmed
	// that; 0 otherwise.
	ended time.Duration
	// forced is set when the member is to be the only one of its cluster.
	forced bool
	// learner is since when it is certain that the member is a learner; 0 if it is not.
	learner time.Duration
}

func (p *place) peerURL(port int) string { return fmt.Sprintf("http://%v:%d", p.Addr, port) }

// changeMembers returns the fault that is a change of the members.
func changeMembers(kind string) fault {
	return func(r *run, f Fault, rng *rand.Rand) func() {
		r.change(kind, f, rng)
		return func() {}
	}
}

// removeAway removes a member that cannot be reached by the others, so that it notices its removal
// only when it is back. If there are no more members than at first, one is added.
func removeAway(r *run, f Fault, rng *rand.Rand) func() {
	if len(r.members) <= r.plan.Members {
		r.change(setup.AddVoter, f, rng)
		return func() {}
	}
	back := r.cut(r.member(f.A), r.members, true, true)
	r.change(setup.Remove, f, rng)
	return back
}

// isChange reports whether a kind of fault changes the members.
func isChange(kind string) bool { return strings.HasPrefix(kind, "member ") }

// place returns the place that is a machine, nil if it is no place of a member.
func (r *run) place(m *world.Machine) *place {
	for _, p := range r.places {
		if p.Machine == m {
			return p
		}
	}
	return nil
}

// at returns the place with a peer URL, and the port.
func (r *run) at(url string) (*place, int) {
	if a, err := netip.ParseAddrPort(strings.TrimPrefix(url, "http://")); err == nil {
		for _, p := range r.places {
			if p.Addr == a.Addr() {
				return p, int(a.Port())
			}
		}
	}
	return nil, 0
}

// change starts an operator that changes the membership, if none does already. Its machine is part
// of the world, so that faults of the network concern it too. It ends by itself.
func (r *run) change(kind string, f Fault, rng *rand.Rand) {
	if r.changing != nil || r.flipped() != nil {
		r.world.Note(nil, "another change of the members has not ended, or a member is damaged")
		return
	}
	target := r.place(r.member(f.A))
	free := slices.DeleteFunc(slices.Clone(r.places),
		func(p *place) bool { return slices.Contains(r.members, p.Machine) })
	adds := kind == setup.AddLearner || kind == setup.AddVoter
	switch {
	case adds && len(free) > 0:
		target = free[rng.IntN(len(free))]
	case kind == setup.AddLearner, kind == setup.Remove && len(r.members) <= r.plan.Members:
		kind = setup.ReplaceBy
	case kind == setup.AddVoter:
		kind = setup.Replace
	}
	c := setup.Change{Kind: kind, Endpoints: r.endpoints(), Until: int64(r.world.Now() + patience),
		PeerURL: target.peerURL(target.ports[0])}
	if adds && kind != setup.Replace && kind != setup.ReplaceBy {
		c.PeerURL = target.peerURL(peerPort + rng.IntN(3))
	}
	c.Former = append(slices.Clone(target.former), target.id)
	if rng.IntN(2) == 0 {
		// clients reach the learner meanwhile
		c.Linger = int64(3*time.Second) + rng.Int64N(int64(6*time.Second))
	}
	if kind == setup.Move {
		c.NewURL = target.peerURL(peerPort + (target.ports[0]-peerPort+1)%4)
	}
	r.startChange(c)
}

func (r *run) startChange(c setup.Change) {
	r.world.Note(nil, "change: %s of %s %s", c.Kind, c.PeerURL, c.NewURL)
	c.Users = r.plan.users()
	r.changing = r.operator()
	r.changing.Start("change", encode(c))
	r.disturb()
}

// operator returns a new machine for an operator.
func (r *run) operator() *world.Machine {
	m := r.world.Machine(fmt.Sprintf("o%d", r.operators),
		netip.AddrFrom4([4]byte{10, 0, 2, byte(r.operators + 1)}))
	r.operators++
	return m
}

// changed handles the end of an operator that changed the membership. After the faults all learners
// are promoted.
func (r *run) changed() {
	r.changing = nil
	r.disturb()
	if !r.replaceFlipped() && r.over && !r.settled {
		r.settle()
	}
}

// settle promotes the learners that are left, and learns who is a member.
func (r *run) settle() {
	if r.changing == nil && !r.replaceFlipped() {
		r.settled = true
		r.startChange(setup.Change{Kind: setup.Settle, Endpoints: r.endpoints(),
			Until: int64(r.plan.Faulty + r.plan.recovery() + catchUp)})
	}
}

// listed handles a list of the members: machines that are not as it says become so. Lists arrive in
// order, because only one operator reads them at a time, and linearizably.
func (r *run) listed(list *setup.Members) {
	var urls []string
	at := map[*place]setup.Listed{}
	ports := map[*place]int{}
	for _, l := range list.List {
		p, port := r.at(l.PeerURL)
		if p == nil {
			r.v.Add("a member has the peer URL %q, which no operator added", l.PeerURL)
			return
		}
		at[p], ports[p] = l, port
		urls = append(urls, l.PeerURL)
	}
	initial := r.initialCluster(urls)
	var members []*world.Machine
	for _, p := range r.places {
		l, in := at[p]
		was := slices.Contains(r.members, p.Machine)
		switch {
		case !in:
			if was {
				r.world.Note(p.Machine, "is no member any more")
				p.removed, p.learner, p.ended = true, 0, 0
				p.empty = p.empty || !p.started
			}
			continue
		case p.id == 0 && was:
			p.id = l.ID
		case p.id != l.ID:
			r.join(p, l, ports[p], initial)
		case p.ended > 0 && p.ended < time.Duration(list.Called):
			r.v.Add("%s ended as a removed member at %v, and is a member at %v", p.Name, p.ended,
				time.Duration(list.Called))
		case p.ports[0] != ports[p]:
			r.moved = true
			p.ports = []int{ports[p]}
			r.stop(p.Machine, p.Kill)
			r.restart(p.Machine)
		}
		if p.initial != "" {
			p.initial = initial
		}
		members = append(members, p.Machine)
		r.learns(p, l, time.Duration(list.Called))
	}
	r.members = members
}

// initialCluster returns the --initial-cluster of members with these peer URLs.
func (r *run) initialCluster(urls []string) string {
	var list []string
	for _, url := range urls {
		if p, _ := r.at(url); p != nil {
			list = append(list, p.Name+"="+url)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// refused handles that a member does not join because of the list that it was given: it is started
// again with the members that it names. They may be known in no other way, if the member is needed
// for a quorum. A refusal of the right list is none. A member that has not applied the addition yet
// names a list without the new one, which keeps its own.
func (r *run) refused(p *place, line []byte) {
	var urls []string
	for _, s := range peerURL.FindAllSubmatch(line, -1) {
		urls = append(urls, string(s[1]))
	}
	named := r.initialCluster(urls)
	if p.outdated = named != p.given; strings.Contains(","+named, ","+p.Name+"=") {
		p.initial = named
	}
}

// join starts a member that was added, with an empty disk.
func (r *run) join(p *place, l setup.Listed, port int, initial string) {
	r.stop(p.Machine, p.Kill)
	p.Wipe()
	*p = place{Machine: p.Machine, id: l.ID, former: append(p.former, p.id), ports: []int{port},
		initial: initial}
	r.joined = p.Machine
	r.world.After(time.Duration(r.world.Fork().Int64N(int64(2*time.Second))),
		func() { r.restart(p.Machine) })
}

// learns remembers since when a member is a learner. Between the first list that says so and the
// last one it answers no linearizable request.
func (r *run) learns(p *place, l setup.Listed, called time.Duration) {
	if !l.Learner {
		p.learner = 0
		return
	}
	switch {
	case p.learner == 0:
		p.learner = r.world.Now()
	case called > p.learner:
		r.learners = append(r.learners, span{slices.Index(r.places, p), p.learner, called})
	}
}

// span is a time in which the member at a place was a learner.
type span struct {
	place    int
	from, to time.Duration
}

// checkLearners checks that no learner answered a linearizable request, which only voters answer.
func (r *run) checkLearners() {
	for n := range r.ops {
		o := &r.ops[n]
		if o.Outcome != check.Acked || !o.Linearizable() {
			continue
		}
		for _, s := range r.learners {
			if s.place == o.Member && s.from <= o.Call && o.Ret <= s.to {
				r.v.Add("a learner answered: %v", o)
			}
		}
	}
}

// moving handles that a member is about to get another peer URL: it listens at both until the
// change was made.
func (r *run) moving(to string) {
	p, port := r.at(to)
	p.ports = append(p.ports[:1:1], port)
	r.stop(p.Machine, p.Kill)
	r.restart(p.Machine)
}

// unsettled returns what the end of the run is waiting for.
func (r *run) unsettled() string {
	if r.changing != nil || !r.settled {
		return "the members are not known, or a learner is not promoted"
	}
	for _, p := range r.places {
		if p.removed && p.Running() && !r.moved {
			return fmt.Sprintf("%s was removed, and runs", p.Name)
		}
	}
	return ""
}

// hitInstallation returns a function that hits a member which has received a snapshot and installs
// it.
func (r *run) hitInstallation(rng *rand.Rand) func(*world.Machine) {
	return func(m *world.Machine) {
		r.received = nil
		kill := []func(){m.Kill, m.PowerOff, m.PowerOff, m.PowerOff}[rng.IntN(4)]
		// With a slow disk, most of the installation is spent between two of its steps.
		sound := r.disk(m, world.DiskFaults{Slow: 60 * time.Millisecond})
		r.world.After(time.Duration(rng.Int64N(int64(250*time.Millisecond))), func() {
			sound()
			if !r.over {
				r.world.Note(m, "is hit while it installs a snapshot")
				r.stop(m, kill)
				r.world.After(300*time.Millisecond, func() { r.restart(m) })
			}
		})
	}
}

// hitInstallations cuts a member off until it needs a snapshot, and hits it each time it has
// received one. In half of the faults its syncs fail instead: it copies what it has, to offer it to
// the sender of the snapshot, and little else is synced during it.
func hitInstallations(r *run, f Fault, rng *rand.Rand) func() {
	away, over, sound := r.member(f.A), false, func() {}
	back := r.cut(away, r.members, true, true)
	failing := rng.IntN(2) == 0
	r.world.After(f.For/2, func() {
		if over {
			return
		}
		if back(); failing {
			sound = r.disk(away, world.DiskFaults{SyncFails: 0.5})
			return
		}
		var hit func(*world.Machine)
		hit = func(m *world.Machine) {
			r.hitInstallation(rng)(m)
			r.world.After(time.Second, func() {
				if !over {
					r.received = hit
				}
			})
		}
		r.received = hit
	})
	return func() {
		over, r.received = true, nil
		back()
		sound()
		for _, m := range r.members {
			r.restart(m)
		}
	}
}

// interruptSnapshot cuts a member off, until it needs a snapshot. When it is sent one, the sender
// or the receiver is hit.
func interruptSnapshot(r *run, f Fault, rng *rand.Rand) func() {
	away := r.member(f.A)
	ends := []func(){r.cut(away, r.members, true, true)}
	back := ends[0]
	failing := rng.IntN(3) == 0
	r.world.After(f.For*3/4, func() {
		back()
		if failing && !r.over {
			// It copies what it has, to offer it to the sender of the snapshot, and little else is
			// synced meanwhile.
			sound := r.disk(away, world.DiskFaults{SyncFails: 0.5})
			ends = append(ends, sound)
			r.world.After(500*time.Millisecond+
				time.Duration(rng.Int64N(int64(3*time.Second))), sound)
		}
	})
	if rng.IntN(2) == 0 {
		r.received = r.hitInstallation(rng)
	}
	r.sending = func(from, to *world.Machine) {
		r.sending = nil
		hit := from
		if rng.IntN(2) == 0 {
			hit = to
		}
		link := r.world.Link(from, to)
		rate := link.BytesPerSecond
		link.BytesPerSecond = 64 << 10
		ends = append(ends, func() { link.BytesPerSecond = rate })
		r.world.Note(hit, "is hit while a snapshot is sent from %s to %s", from.Name, to.Name)
		what := rng.IntN(6)
		r.world.After(time.Duration(rng.Int64N(int64(60*time.Millisecond))), func() {
			if r.over {
				return
			}
			switch what {
			case 0:
				r.stop(hit, hit.Kill)
			case 1:
				r.stop(hit, hit.PowerOff)
			case 2:
				hit.Pause()
				ends = append(ends, hit.Resume)
			case 3:
				r.world.Reset(from, to)
			case 4:
				ends = append(ends, r.cut(hit, r.members, true, true))
			case 5:
				ends = append(ends, r.disk(hit, world.DiskFaults{SyncFails: 0.2}))
			}
		})
	}
	return func() {
		r.sending, r.received = nil, nil
		for _, end := range ends {
			end()
		}
		for _, m := range r.members {
			r.restart(m)
		}
	}
}
