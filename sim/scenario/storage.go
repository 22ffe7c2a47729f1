package scenario

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

// patientCompaction is longer than a client waits for the outcome of a compaction.
const patientCompaction = 4 * time.Second

// flips is how bits flip: under files of which kind, which are longer than least and undamaged at
// their end so far, how many times more than a few, and in how many of four cases the member starts
// again then.
type flips struct {
	ext             string
	least           int64
	times, restarts int
}

// flipBits returns the fault that flips bits under the files of one member. Damaged data must never
// be served; the member may raise an alarm, end by itself, or not start. At the end of the fault it
// is replaced by one with an empty disk. Only one member at a time is damaged: the others have
// everything.
func flipBits(how flips) fault {
	return func(r *run, f Fault, rng *rand.Rand) func() {
		p := r.place(r.member(f.A))
		if r.changing != nil || r.flipped() != nil || !r.canLose(p) {
			r.world.Note(nil, "no bit flips while the members change, or without a majority of others")
			return func() {}
		}
		n := how.times * (1 + rng.IntN(4))
		if rng.IntN(2) == 0 {
			n *= 8
		}
		for range n {
			p.Flip(rng, func(name string) int64 {
				if !strings.HasSuffix(name, how.ext) {
					return math.MaxInt64
				}
				return max(spareBytes(name), how.least)
			})
		}
		p.flipped, p.over, r.bitsFlipped = true, false, true
		if rng.IntN(4) < how.restarts {
			r.stop(p.Machine, []func(){p.Kill, p.PowerOff}[rng.IntN(2)])
			r.world.After(time.Second, func() { r.restart(p.Machine) })
		}
		return func() {
			p.over = true
			r.replaceFlipped()
		}
	}
}

// fillDisk fills the disk of a member. In half of the cases what is committed cannot be applied:
// the disk is full while syncs are under way, or only the raft log has room, as if it had a disk of
// its own.
func fillDisk(r *run, f Fault, rng *rand.Rand) func() {
	m, over := r.member(f.A), false
	switch rng.IntN(4) {
	case 0, 1:
		return r.disk(m, world.DiskFaults{Full: true})
	case 2:
		return r.disk(m, world.DiskFaults{Full: true, Roomy: walDir})
	}
	end := r.disk(m, world.DiskFaults{Slow: time.Duration(50+rng.IntN(500)) * time.Millisecond})
	r.world.After(f.For/4, func() {
		if !over {
			r.disk(m, world.DiskFaults{Full: true})
		}
	})
	return func() {
		over = true
		end()
	}
}

// canLose reports whether the other voters are a majority without the member at a place.
func (r *run) canLose(p *place) bool {
	voters, others := 0, 0
	for _, m := range r.members {
		o := r.place(m)
		if o.learner > 0 {
			continue
		}
		if voters++; o != p {
			others++
		}
	}
	return others > voters/2
}

// walDir is where a member has its raft log.
const walDir = "/data/wal/"

// spareBytes is how much of the end of a file stays undamaged. Damage to the last group of a raft
// log cannot be distinguished from a group that was being written when the power failed.
func spareBytes(name string) int64 {
	if strings.HasPrefix(name, walDir) {
		return 40 << 10
	}
	return 0
}

// flipped returns the place of the member whose files are damaged, or nil.
func (r *run) flipped() *place {
	for _, p := range r.places {
		if p.flipped && !p.removed {
			return p
		}
	}
	return nil
}

// replaceFlipped replaces a member whose files are damaged, when its fault has ended, and reports
// whether there is one.
func (r *run) replaceFlipped() bool {
	p := r.flipped()
	if p == nil || !p.over {
		return false
	}
	if r.changing == nil {
		r.startChange(setup.Change{Kind: setup.Replace, Endpoints: r.endpoints(),
			Until:   int64(r.plan.Faulty + r.plan.recovery() + catchUp),
			PeerURL: p.peerURL(p.ports[0]), Former: append(slices.Clone(p.former), p.id)})
	}
	return true
}

// checkEqual checks that members with the same revision and compact revision have the same hash,
// and that members which have applied the same index say the same about the cluster. At the end all
// have compacted the same.
func (r *run) checkEqual() {
	final := slices.DeleteFunc(slices.Clone(r.hashes),
		func(h setup.Hash) bool { return h.Rev != r.final || !r.compactedBefore(r.final) })
	for _, h := range final[min(1, len(final)):] {
		if h.Compact != final[0].Compact {
			r.v.Add("members have compacted differently at the end: %+v and %+v", final[0], h)
		}
	}
	for n, h := range r.hashes {
		for _, o := range r.hashes[:n] {
			if h.Rev == o.Rev && h.Compact == o.Compact && h.Hash != o.Hash {
				r.v.Add("members have different hashes: %+v and %+v", o, h)
			}
		}
	}
	for n, s := range r.statuses {
		for _, o := range r.statuses[:n] {
			if s.Index == o.Index && s.Cluster != o.Cluster {
				r.v.Add("members differ about the cluster: %+v and %+v", o, s)
			}
		}
	}
}

// compactedBefore reports whether all compactions had an outcome before the write of a revision was
// called.
func (r *run) compactedBefore(rev int64) bool {
	for n := range r.ops {
		if o := &r.ops[n]; o.Outcome == check.Acked && o.Wrote() && o.Rev == rev {
			last := len(r.compactions) - 1
			return last < 0 || r.compactions[last].At+patientCompaction < o.Call
		}
	}
	return false
}
