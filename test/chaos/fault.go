package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/link"
	"vigil/test/proc"
)

// fault is a failure that is injected while clients run. Afterwards the run heals the network,
// resumes and restarts members, and waits until all serve; the fault itself reverts everything
// else.
type fault struct {
	name string
	// short is set if the fault is part of the short run.
	short  bool
	inject func(*run)
}

// faults are those of every network, in the order of a run.
var faults = []fault{
	{"kill the leader", true, func(r *run) {
		r.kill(r.leader())
		r.recover()
	}},
	{"kill a follower", false, func(r *run) {
		r.kill(r.follower())
		r.hold(time.Second)
	}},
	{"kill all", false, func(r *run) {
		for _, s := range r.slots {
			r.kill(s)
		}
	}},
	{"stop the leader", false, func(r *run) {
		r.stop(r.leader())
		r.recover()
	}},
	{"pause the leader", true, func(r *run) {
		lead := r.leader()
		r.pause(lead)
		r.recover()
		r.hold(time.Duration(r.rng.Int64N(int64(time.Second))))
		// These are in its sockets when it continues.
		wait := r.probe(lead)
		r.progress(20)
		r.resume(lead)
		wait()
		r.hold(500 * time.Millisecond)
	}},
	{"pause the leader, and it goes on cut off", true, func(r *run) {
		lead := r.leader()
		r.pause(lead)
		r.recover()
		r.cut(lead, true, true, link.Rule{Stall: true})
		wait := r.probe(lead)
		r.progress(20)
		// It does not know yet that it is no longer the leader, and no message reaches it.
		r.resume(lead)
		r.hold(time.Second)
		r.net.Heal()
		wait()
	}},
	{"pause a follower", false, func(r *run) {
		r.pause(r.follower())
		r.hold(2 * time.Second)
	}},
	{"pause all", false, func(r *run) {
		for _, s := range r.slots {
			r.pause(s)
		}
		r.hold(2 * time.Second)
	}},
	{"partition the leader", true, func(r *run) {
		r.cut(r.leader(), true, true, link.Rule{Stall: true})
		r.recover()
		r.hold(time.Second)
	}},
	{"partition a follower", false, func(r *run) {
		r.cut(r.follower(), true, true, link.Rule{Stall: true})
		r.hold(4 * time.Second)
	}},
	{"partition everybody", false, func(r *run) {
		for _, s := range r.slots {
			r.cut(s, true, true, link.Rule{Stall: true})
		}
		r.hold(3 * time.Second)
	}},
	{"the leader is not heard", false, func(r *run) {
		r.cut(r.leader(), true, false, link.Rule{Stall: true})
		r.recover()
		r.hold(time.Second)
	}},
	{"the leader does not hear", false, func(r *run) {
		r.cut(r.leader(), false, true, link.Rule{Stall: true})
		r.recover()
		r.hold(time.Second)
	}},
	{"a follower is heard or hears, not both", false, func(r *run) {
		hears := r.rng.IntN(2) == 0
		r.cut(r.follower(), !hears, hears, link.Rule{Stall: true})
		r.hold(4 * time.Second)
	}},
	{"a follower that no other can connect to", true, func(r *run) {
		s := r.follower()
		for _, o := range r.others(s) {
			r.net.Set(o.node, s.node, link.Rule{NoDial: true})
			r.net.Reset(o.node, s.node)
		}
		r.kill(s)
		r.progress(20)
		r.launch(s)
		r.serving(s)
	}},
	{"one link is cut", false, func(r *run) {
		a := r.leader()
		b := r.others(a)[0]
		r.net.Set(a.node, b.node, link.Rule{Stall: true})
		r.net.Set(b.node, a.node, link.Rule{Stall: true})
		r.hold(4 * time.Second)
	}},
	{"a slow network that resets", true, func(r *run) {
		for _, s := range r.slots {
			r.cut(s, true, true,
				link.Rule{Delay: 5 * time.Millisecond, Jitter: 60 * time.Millisecond})
		}
		for range 8 {
			a := r.slots[r.rng.IntN(len(r.slots))]
			b := r.others(a)[r.rng.IntN(len(r.slots)-1)]
			r.net.Reset(a.node, b.node)
			r.hold(300 * time.Millisecond)
		}
	}},
	{"a narrow network", false, func(r *run) {
		for _, s := range r.slots {
			r.cut(s, true, true, link.Rule{Rate: 100 << 10})
		}
		r.hold(3 * time.Second)
	}},
	{"a leader that stutters", false, func(r *run) {
		lead := r.leader()
		for range 8 {
			r.pause(lead)
			r.hold(250 * time.Millisecond)
			r.resume(lead)
			r.hold(100 * time.Millisecond)
		}
	}},
	{"a slow disk", false, slowDisk},
	{"a full disk", false, fullDisk},
	{"the leader's disk hangs", true, func(r *run) { hungDisk(r, r.leader()) }},
	{"a follower's disk hangs", false, func(r *run) { hungDisk(r, r.follower()) }},
	{"rolling restart", true, func(r *run) {
		for _, s := range r.slots {
			r.stop(s)
			r.progress(20)
			r.launch(s)
			r.serving(s)
		}
	}},
	{"rolling kill", false, func(r *run) {
		for _, s := range r.slots {
			r.kill(s)
			r.progress(20)
			r.launch(s)
			r.serving(s)
		}
	}},
	{"a snapshot for a member that was away", true, func(r *run) {
		s := r.follower()
		if r.rng.IntN(2) == 0 {
			r.kill(s)
		} else {
			r.cut(s, true, true, link.Rule{Stall: true})
		}
		r.away()
	}},
	{"a snapshot, and its receiver is killed", false, func(r *run) {
		s := r.follower()
		r.kill(s)
		r.away()
		r.launch(s)
		r.hold(time.Duration(r.rng.Int64N(int64(400 * time.Millisecond))))
		r.kill(s)
	}},
	{"a slow snapshot, and its sender is killed", false, func(r *run) {
		s := r.follower()
		r.kill(s)
		r.away()
		r.cut(s, false, true, link.Rule{Rate: 300 << 10})
		r.launch(s)
		r.hold(time.Duration(r.rng.Int64N(int64(2 * time.Second))))
		if lead := r.leader(); lead != s {
			r.kill(lead)
		}
		r.net.Heal()
		r.recover()
	}},
	{"move the leader", false, func(r *run) {
		for range 3 {
			lead := r.leader()
			to := r.others(lead)[r.rng.IntN(len(r.slots)-1)]
			ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
			_, err := lead.client.MoveLeader(ctx, to.id)
			cancel()
			if err != nil {
				r.t.Logf("moving the leader: %v", err)
			}
			r.progress(20)
		}
	}},
	{"replace a member", true, func(r *run) {
		s := r.slots[r.rng.IntN(len(r.slots))]
		r.kill(s)
		r.remove(s)
		r.progress(20)
		r.add(s, false)
		r.serving(s)
	}},
	{"replace a member, and the leader is killed", false, func(r *run) {
		s := r.follower()
		r.kill(s)
		r.remove(s)
		r.away()
		r.add(s, false)
		r.hold(time.Duration(r.rng.Int64N(int64(500 * time.Millisecond))))
		lead := r.others(s)[r.rng.IntN(len(r.slots)-1)]
		r.kill(lead)
		r.hold(time.Second)
		r.launch(lead)
		r.recover()
	}},
	{"remove the leader", false, func(r *run) {
		s := r.leader()
		r.remove(s)
		s.Wait() // a removed member stops by itself
		s.up = false
		r.recover()
		r.add(s, false)
		r.serving(s)
	}},
	{"a learner takes a member's place", true, func(r *run) {
		s := r.spare
		r.add(s, true)
		r.promote(s)
		r.serving(s)
		r.opens(s)
		r.progress(50)
		r.spare = r.slots[r.rng.IntN(len(r.slots))]
		r.closes(r.spare)
		r.remove(r.spare)
		r.spare.Wait()
		r.spare.up = false
		r.recover()
	}},
	{"compaction, and a member is killed", true, func(r *run) {
		for n := range 6 {
			r.compact()
			switch n {
			case 1:
				r.kill(r.slots[r.rng.IntN(len(r.slots))])
			case 3:
				r.recover()
			}
			r.progress(30)
		}
	}},
	{"two things at once", false, func(r *run) {
		quick := []func(*slot){
			r.kill,
			r.pause,
			func(s *slot) { r.cut(s, true, true, link.Rule{Stall: true}) },
			func(s *slot) { r.cut(s, r.rng.IntN(2) == 0, true, link.Rule{Stall: true}) },
			func(s *slot) {
				r.cut(s, true, true,
					link.Rule{Delay: 100 * time.Millisecond, Jitter: 300 * time.Millisecond})
			},
		}
		if r.wire != nil {
			quick = append(quick, func(s *slot) { r.wire.Unplug(s.node) })
		}
		for _, n := range rand.New(rand.NewPCG(r.rng.Uint64(), 0)).Perm(len(r.slots))[:2] {
			quick[r.rng.IntN(len(quick))](r.slots[n])
			r.hold(time.Duration(r.rng.Int64N(int64(time.Second))))
		}
		r.hold(2 * time.Second)
	}},
}

// away waits until the others have written so much that they no longer have the log of it.
func (r *run) away() {
	r.t.Helper()
	r.progress(3 * snapshotCount)
}

// compact compacts at a revision that every watcher of all keys may be behind, at a member that is
// able to.
func (r *run) compact() {
	r.t.Helper()
	able := r.able()
	if err := r.compactAt(r.t.Context(), able[r.rng.IntN(len(able))].client, r.rng); err != nil {
		r.t.Logf("compacting: %v", err)
	}
}

func (r *run) compactAt(ctx context.Context, c *clientv3.Client, rng *rand.Rand) error {
	rev := r.all.Last() - rng.Int64N(20)
	for {
		was := r.compacted.Load()
		if was >= rev || r.compacted.CompareAndSwap(was, rev) {
			break
		}
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	opts := []clientv3.CompactOption{}
	if rng.IntN(2) == 0 {
		opts = append(opts, clientv3.WithCompactPhysical())
	}
	_, err := c.Compact(ctx, rev, opts...)
	return err
}

// disturb adds a disturbance to a round of a soak: reset connections between members, compaction,
// both or neither. It returns a description.
func (r *run) disturb(ctx context.Context, working *sync.WaitGroup) string {
	again := func(most time.Duration, rng *rand.Rand, do func(*rand.Rand)) {
		working.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(rng.Int64N(int64(most)))):
					do(rng)
				}
			}
		})
	}
	said := ""
	if r.rng.IntN(3) == 0 {
		said += ", resets"
		var nodes []string
		for _, s := range append(slices.Clone(r.slots), r.spare) {
			nodes = append(nodes, s.node)
		}
		again(600*time.Millisecond, r.fork(), func(rng *rand.Rand) {
			if r.calm.Load() {
				return
			}
			pair := rng.Perm(len(nodes))[:2]
			r.net.Reset(nodes[pair[0]], nodes[pair[1]])
		})
	}
	if r.rng.IntN(3) == 0 {
		said += ", compaction"
		again(time.Second, r.fork(), func(rng *rand.Rand) {
			// not everywhere and always there is somebody to do it
			_ = r.compactAt(ctx, r.last.Client, rng)
		})
	}
	return said
}

// installed is the log message of a member that has installed a snapshot.
func installed() string {
	if proc.Subject() == proc.Vigil {
		return `"installed a snapshot"`
	}
	return `"applied snapshot"`
}
