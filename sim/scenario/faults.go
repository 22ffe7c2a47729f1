package scenario

import (
	"math/rand/v2"
	"slices"
	"time"

	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

// fault begins a fault, and returns a function that ends it. Faults overlap: the end of one must
// not leave another without effect, except that the last one of a kind on the same target wins.
type fault func(r *run, f Fault, rng *rand.Rand) (end func())

// faults are the kinds of faults by name. Those that hit a member begin only while a majority of
// members can go on, or after it: a cluster may lose its majority, but what it has acknowledged
// must survive all the same.
var faults = map[string]fault{
	"kill": func(r *run, f Fault, _ *rand.Rand) func() {
		m := r.member(f.A)
		r.stop(m, m.Kill)
		return func() { r.restart(m) }
	},
	"power failure": func(r *run, f Fault, _ *rand.Rand) func() {
		m := r.member(f.A)
		r.stop(m, m.PowerOff)
		return func() { r.restart(m) }
	},
	"power failure of all": func(r *run, f Fault, rng *rand.Rand) func() {
		for _, m := range r.members {
			r.stop(m, m.PowerOff)
		}
		return func() {
			for _, m := range r.members {
				r.world.After(time.Duration(rng.Int64N(int64(2*time.Second))),
					func() { r.restart(m) })
			}
		}
	},
	"kill of all": func(r *run, f Fault, rng *rand.Rand) func() {
		for _, m := range r.members {
			r.stop(m, m.Kill)
		}
		return func() {
			for _, m := range r.members {
				r.world.After(time.Duration(rng.Int64N(int64(2*time.Second))),
					func() { r.restart(m) })
			}
		}
	},
	"pause": func(r *run, f Fault, _ *rand.Rand) func() {
		m := r.member(f.A)
		m.Pause()
		return m.Resume
	},
	"isolation": func(r *run, f Fault, _ *rand.Rand) func() {
		return r.cut(r.member(f.A), r.world.Machines(), true, true)
	},
	"isolation from members": func(r *run, f Fault, _ *rand.Rand) func() {
		return r.cut(r.member(f.A), r.members, true, true)
	},
	"no data to the member": func(r *run, f Fault, _ *rand.Rand) func() {
		return r.cut(r.member(f.A), r.world.Machines(), false, true)
	},
	"no data from the member": func(r *run, f Fault, _ *rand.Rand) func() {
		return r.cut(r.member(f.A), r.world.Machines(), true, false)
	},
	"partial partition": func(r *run, f Fault, _ *rand.Rand) func() {
		return r.cut(r.member(f.A), []*world.Machine{r.member(f.B)}, true, true)
	},
	"one-way partition": func(r *run, f Fault, _ *rand.Rand) func() {
		return r.cut(r.member(f.A), []*world.Machine{r.member(f.B)}, true, false)
	},
	"flapping link": func(r *run, f Fault, rng *rand.Rand) func() {
		a, b, on := r.member(f.A), r.member(f.B), true
		var flap func()
		flap = func() {
			if !on {
				return
			}
			heal := r.cut(a, []*world.Machine{b}, true, true)
			r.world.After(time.Duration(rng.IntN(400))*time.Millisecond, func() {
				heal()
				r.world.After(time.Duration(rng.IntN(400))*time.Millisecond, flap)
			})
		}
		flap()
		return func() { on = false }
	},
	"slow links": func(r *run, f Fault, rng *rand.Rand) func() {
		delay, others := time.Duration(rng.IntN(300))*time.Millisecond, r.world.Machines()
		if rng.IntN(2) == 0 {
			others = r.members
		}
		return r.slow(r.member(f.A), others, true, delay)
	},
	"member added":               changeMembers(setup.AddVoter),
	"member added as a learner":  changeMembers(setup.AddLearner),
	"member removed":             changeMembers(setup.Remove),
	"member replaced":            changeMembers(setup.Replace),
	"member replaced by learner": changeMembers(setup.ReplaceBy),
	"member moved":               changeMembers(setup.Move),
	"member removed while away":  removeAway,
	"snapshot interrupted":       interruptSnapshot,
	"bit flips":                  flipBits(flips{times: 1, restarts: 2}),
	"bit flips under records":    flipBits(flips{ext: ".seg", times: 16}),
	"bit flips before a start": flipBits(flips{ext: ".log", least: 4 << 10,
		times: 1, restarts: 4}),
	"hits at the end of leases": hitExpiry,
	"leader transfers": func(r *run, f Fault,
		rng *rand.Rand) func() {
		return transferLeaders(r, f, rng, rng.IntN(2) == 0)
	},
	"power failure during syncs":  failSyncing,
	"power failure of the voters": failVoters,
	"power failures one by one":   failInTurn,
	"failures during starts": func(r *run, f Fault, rng *rand.Rand) func() {
		return failStarting(r, f, rng, rng.IntN(2) == 0, rng.IntN(2) == 0)
	},
	"failures during joins": func(r *run, f Fault,
		rng *rand.Rand) func() {
		return failStarting(r, f, rng, true, true)
	},
	"installations interrupted":   hitInstallations,
	"late follower":               delayFollower,
	"restarts of a late follower": restartLateFollower,
	"quick transfers": func(r *run, f Fault,
		rng *rand.Rand) func() {
		return transferLeaders(r, f, rng, true)
	},
	"kills after elections":       killElected,
	"failed syncs, then no power": failSyncsThenPower,
	"broken connections": func(r *run, f Fault, rng *rand.Rand) func() {
		m := r.member(f.A)
		for _, o := range r.world.Machines() {
			if o != m && rng.IntN(2) == 0 {
				r.world.Reset(m, o)
			}
		}
		return func() {}
	},
	"slow disk": func(r *run, f Fault, rng *rand.Rand) func() {
		return r.disk(r.member(f.A),
			world.DiskFaults{Slow: time.Duration(1+rng.IntN(3000)) * time.Millisecond})
	},
	"slow disks": func(r *run, _ Fault, rng *rand.Rand) func() {
		return r.slowDisks(world.DiskFaults{Slow: time.Duration(200+
			rng.IntN(1800)) * time.Millisecond})
	},
	"writes of the log hang":     hangDisk("writes of the log hang"),
	"syncs of the log hang":      hangDisk("syncs of the log hang"),
	"writes of the history hang": hangDisk("writes of the history hang"),
	"syncs of the history hang":  hangDisk("syncs of the history hang"),
	"changes of names hang":      hangDisk("changes of names hang"),
	"reads hang":                 hangDisk("reads hang"),
	"the disk hangs":             hangDisk("the disk hangs"),
	"full disk":                  fillDisk,
	"full disk of the history": func(r *run, f Fault, _ *rand.Rand) func() {
		return r.disk(r.member(f.A), world.DiskFaults{Full: true, Roomy: walDir})
	},
	"failing syncs": func(r *run, f Fault, rng *rand.Rand) func() {
		return r.disk(r.member(f.A),
			world.DiskFaults{SyncFails: []float64{0.01, 0.1, 1}[rng.IntN(3)]})
	},
	"clock rate": func(r *run, f Fault, rng *rand.Rand) func() {
		m := r.member(f.A)
		r.setRate(m, rng.Int64N(400_000)-200_000)
		return func() { r.setRate(m, 0) }
	},
	"clock jump": func(r *run, f Fault, rng *rand.Rand) func() {
		m := r.member(f.A)
		d := time.Duration(rng.Int64N(int64(2*time.Hour))) - time.Hour
		m.Jump(d)
		return func() { m.Jump(-d) }
	},
}

// member returns a target of a fault.
func (r *run) member(n int) *world.Machine {
	switch {
	case n == theLeader:
		return r.leader()
	case n == theNewest && slices.Contains(r.members, r.joined):
		return r.joined
	case n == theNewest:
		return r.members[len(r.members)-1]
	}
	return r.members[n%len(r.members)]
}

// stop ends the process of a member by kill, which must be safe if it does not run.
func (r *run) stop(m *world.Machine, kill func()) {
	if m.Running() {
		kill()
		r.disturb()
	}
}

// cut stops data between a machine and others, and returns a function that undoes it.
func (r *run) cut(m *world.Machine, others []*world.Machine, from, to bool) func() {
	var undo []func()
	one := func(a, b *world.Machine) {
		k := [2]*world.Machine{a, b}
		if r.cuts[k]++; r.cuts[k] == 1 {
			r.world.Cut(a, b)
		}
		undo = append(undo, func() {
			if r.cuts[k]--; r.cuts[k] == 0 {
				r.world.Heal(a, b)
			}
		})
	}
	for _, o := range others {
		if o == m {
			continue
		}
		if from {
			one(m, o)
		}
		if to {
			one(o, m)
		}
	}
	return func() {
		for _, u := range undo {
			u()
		}
		undo = nil
	}
}

func (r *run) disk(m *world.Machine, f world.DiskFaults) func() {
	m.SetDiskFaults(f)
	if f.SyncFails > 0 {
		r.damaged[m] = true // it may end by itself from now on
	}
	r.full[m] = f.Full
	return func() {
		m.SetDiskFaults(world.DiskFaults{})
		r.full[m] = false
	}
}
