package scenario

import (
	"strings"
	"testing"
	"time"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

// passTime lets time pass in the world of a run, which has no processes.
func passTime(t *testing.T, r *run, to time.Duration) {
	r.world.At(to, func() {})
	if err := r.world.Run(to, func() bool { return r.world.Now() >= to }); err != nil {
		t.Fatal(err)
	}
}

// TestCalm: a span without disturbances begins some time after the last one, and ends with the
// next.
func TestCalm(t *testing.T) {
	r := &run{world: world.New(&world.Guest{}, 1, nil), plan: Plan{Faulty: time.Minute}}
	at := func(s int) { passTime(t, r, time.Duration(s)*time.Second) }
	r.calm.active++
	r.disturb()
	at(20) // a fault
	r.calm.active--
	r.disturb()
	at(30) // nothing
	r.disturb()
	at(35) // nothing, for a short time
	r.changing = &world.Machine{}
	r.disturb()
	at(50) // a change of the members
	r.changing = nil
	r.disturb()
	at(60)
	r.disturb()
	settling := r.plan.settling()
	if s := r.calm.spans; len(s) != 2 || s[0].From != 20*time.Second+settling ||
		s[0].To != 30*time.Second || s[1].From != 50*time.Second+settling ||
		s[1].To != 60*time.Second {
		t.Errorf("nothing disturbs the cluster in %+v", s)
	}
	r.places, r.members = []*place{{Machine: &world.Machine{}}}, []*world.Machine{nil}
	r.members[0] = r.places[0].Machine
	if r.undisturbed() != nil {
		t.Error("nothing disturbs a cluster whose member does not run")
	}
}

// TestHanging: while a part of the disk of one member hangs, the others are judged from two
// election timeouts on, if nothing else disturbs the cluster.
func TestHanging(t *testing.T) {
	r := &run{world: world.New(&world.Guest{}, 1, nil), plan: Plan{Faulty: time.Minute},
		hung: map[*world.Machine]int{}}
	for range 3 {
		r.places = append(r.places, &place{Machine: &world.Machine{}})
		r.members = append(r.members, r.places[len(r.places)-1].Machine)
	}
	one := r.members[1]
	r.calm.active, r.hung[one] = 1, 1
	if r.hanging() != one {
		t.Error("the member is not known")
	}
	r.calm.active = 2
	if r.hanging() != nil {
		t.Error("another fault is excused as well")
	}
	r.calm.active, r.hung[r.members[0]] = 2, 1
	if r.hanging() != nil {
		t.Error("two members hang, and the third is judged")
	}
	r.hung = map[*world.Machine]int{one: 1}
	r.calm.active, r.calm.members = 1, map[int]bool{}
	if r.disturb(); r.calm.from != 2*r.plan.election() {
		t.Errorf("judged from %v on", r.calm.from)
	}
	r.calm.members = nil // something else was under way before
	if r.disturb(); r.calm.from != r.plan.settling() {
		t.Errorf("judged from %v on, after another fault", r.calm.from)
	}
}

// TestIdle: many runs of processes for some seconds are a violation while nothing disturbs the
// cluster.
func TestIdle(t *testing.T) {
	p := Plan{Places: 3}
	many := p.idleRuns() + 1
	for _, c := range []struct {
		from, seconds, runs int
		want                bool
	}{{2, idleTime, many, true}, {2, idleTime, many - 1, false}, {2, idleTime - 1, many, false},
		{0, idleTime, many, false}, {5, idleTime, many, false}} {
		r := &run{plan: p, busy: make([]int, 12),
			calm: calm{spans: []check.Span{{From: time.Second, To: 9500 * time.Millisecond}}}}
		for n := range c.seconds {
			r.busy[c.from+n] = c.runs
		}
		if r.checkIdle(); len(r.v) > 0 != c.want {
			t.Errorf("%d runs a second for %d seconds from %d on: %v", c.runs,
				c.seconds, c.from, r.v)
		}
	}
}

// TestCompactedAlike: at the end all members have compacted the same, if no compaction is under
// way.
func TestCompactedAlike(t *testing.T) {
	last := check.Op{Kind: check.Put, Outcome: check.Acked, Rev: 9, Call: 20 * time.Second}
	for _, c := range []struct {
		name   string
		at     time.Duration
		hashes []setup.Hash
		want   bool
	}{
		{"alike", 2 * time.Second, []setup.Hash{{Rev: 9, Compact: 5}, {Rev: 9, Compact: 5}}, false},
		{"one has not compacted", 2 * time.Second,
			[]setup.Hash{{Rev: 9, Compact: 5}, {Rev: 9, Compact: 3}}, true},
		{"before the end", 2 * time.Second,
			[]setup.Hash{{Rev: 8, Compact: 5}, {Rev: 8, Compact: 3}}, false},
		{"a compaction under way", 19 * time.Second,
			[]setup.Hash{{Rev: 9, Compact: 5}, {Rev: 9, Compact: 3}}, false},
	} {
		r := &run{final: 9, ops: []check.Op{last}, hashes: c.hashes,
			compactions: check.Compactions{{At: c.at, Rev: 5}}}
		if r.checkEqual(); strings.Contains(strings.Join(r.v, "\n"),
			"compacted differently") != c.want {
			t.Errorf("%s: %v", c.name, r.v)
		}
	}
}
