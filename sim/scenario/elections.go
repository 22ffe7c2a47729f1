package scenario

import (
	"math/rand/v2"
	"slices"
	"time"

	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

// transferLeaders transfers leadership at random, as an operator does. If it is quick, leadership
// moves between the other members while the messages of one are slow: some reach a leader that was
// deposed and elected again in between.
func transferLeaders(r *run, f Fault, rng *rand.Rand, quick bool) func() {
	op := r.operator()
	c := setup.Operator{Users: r.plan.users(), Seed: rng.Uint64(), Endpoints: endpoints(r.members),
		Pause: int64([]time.Duration{300 * time.Millisecond, 2 * time.Second}[rng.IntN(2)])}
	fast := func() {}
	if quick {
		slow := slices.Index(r.members, r.member(f.A))
		if r.members[slow] == r.leader() {
			slow = (slow + 1) % len(r.members)
		}
		c.Endpoints = slices.Delete(c.Endpoints, slow, slow+1)
		c.Pause = int64(50 * time.Millisecond)
		fast = r.slow(r.members[slow], r.members, false,
			time.Duration(50+rng.IntN(250))*time.Millisecond)
	}
	op.Start("operator", encode(c))
	return func() {
		r.stop(op, op.Kill)
		fast()
	}
}

// failVoters lets the leader lose power. When a new leader is elected, it is cut off from the other
// members, which lose power too: only their disks know for which member they voted.
func failVoters(r *run, _ Fault, rng *rand.Rand) func() {
	old := r.leader()
	r.stop(old, old.PowerOff)
	var undo []func()
	r.elected = func(leader *world.Machine) {
		r.elected = nil
		undo = append(undo, r.cut(leader, r.members, true, true))
		for _, m := range r.members {
			if m != leader {
				r.stop(m, m.PowerOff)
				r.world.After(time.Duration(rng.Int64N(int64(300*time.Millisecond))),
					func() { r.restart(m) })
			}
		}
	}
	return func() {
		r.elected = nil
		for _, u := range undo {
			u()
		}
		for _, m := range r.members {
			r.restart(m)
		}
	}
}

// killElected kills all members soon after each election, while their first proposals are under way
// and disks are slow. What is left of them in the logs is applied while the next proposals are
// under way.
func killElected(r *run, _ Fault, rng *rand.Rand) func() {
	healthy, pending, over := r.slowDisks(world.DiskFaults{Slow: 50 * time.Millisecond}), false,
		false
	r.elected = func(*world.Machine) {
		if pending {
			return
		}
		pending = true
		r.world.After(time.Duration(rng.Int64N(int64(120*time.Millisecond))), func() {
			pending = false
			if over {
				return
			}
			for _, m := range r.members {
				r.stop(m, m.Kill)
				r.world.After(time.Duration(rng.Int64N(int64(100*time.Millisecond))),
					func() { r.restart(m) })
			}
		})
	}
	return func() {
		over, r.elected = true, nil
		healthy()
		for _, m := range r.members {
			r.restart(m)
		}
	}
}

// delayFollower lets a follower learn late what the others know, while its own messages are fast:
// what it proposes and answers is based on a former state.
func delayFollower(r *run, f Fault, rng *rand.Rand) func() {
	return r.delay(r.follower(f.A), time.Duration(100+rng.IntN(400))*time.Millisecond)
}

// restartLateFollower kills a late follower again and again, each time soon after it knows the
// leader, while its first proposals are under way: the next process makes its own before it has
// received what the log holds of theirs.
func restartLateFollower(r *run, f Fault, rng *rand.Rand) func() {
	m, late := r.follower(f.A), time.Duration(200+rng.IntN(300))*time.Millisecond
	fast, over := r.delay(m, late), false
	kill := func() {
		if !over {
			r.stop(m, m.Kill)
			r.restart(m)
		}
	}
	killed := 0
	r.follows = func(o *world.Machine) {
		if o == m && m.Starts() != killed {
			killed = m.Starts()
			r.world.After(20*time.Millisecond+time.Duration(rng.Int64N(int64(late))), kill)
		}
	}
	kill()
	return func() {
		over, r.follows = true, nil
		fast()
		r.restart(m)
	}
}

// follower returns the member with a number, or the next one if that leads.
func (r *run) follower(n int) *world.Machine {
	m := r.member(n)
	if m == r.leader() {
		m = r.members[(slices.Index(r.members, m)+1)%len(r.members)]
	}
	return m
}

// delay adds a delay to what others send to a member, and returns a function that undoes it.
func (r *run) delay(m *world.Machine, delay time.Duration) func() {
	var undo []func()
	for _, o := range r.members {
		if o != m {
			undo = append(undo, r.slow(o, []*world.Machine{m}, false, delay))
		}
	}
	return func() {
		for _, u := range undo {
			u()
		}
	}
}

// slow adds a delay to what a machine sends to others, or in both directions, and returns a
// function that undoes it.
func (r *run) slow(m *world.Machine, others []*world.Machine, both bool,
	delay time.Duration) func() {
	var undo []func()
	for _, o := range others {
		links := []*world.Link{r.world.Link(m, o)}
		if both {
			links = append(links, r.world.Link(o, m))
		}
		for _, l := range links {
			l.Delay += delay
			l.Jitter += delay
			undo = append(undo, func() {
				l.Delay -= delay
				l.Jitter -= delay
			})
		}
	}
	r.world.Note(m, "links slow down by %v", delay)
	return func() {
		r.world.Note(m, "links are fast again")
		for _, u := range undo {
			u()
		}
	}
}
