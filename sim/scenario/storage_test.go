package scenario

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

// TestChecksOfMembers: records that break a promise are violations, and those that do not are none.
func TestChecksOfMembers(t *testing.T) {
	put := check.Op{Member: 1, Kind: check.Put, Outcome: check.Acked, Call: 3 * time.Second,
		Ret: 4 * time.Second}
	with := func(change func(*check.Op)) check.Op {
		o := put
		change(&o)
		return o
	}
	learners := []span{{1, 2 * time.Second, 5 * time.Second}}
	for _, c := range []struct {
		name string
		r    *run
		want int
	}{
		{"different hashes",
			&run{hashes: []setup.Hash{{Rev: 5, Compact: 2, Hash: 1},
				{Rev: 5, Compact: 2, Hash: 2}}}, 1},
		{"hashes of other revisions",
			&run{hashes: []setup.Hash{{Rev: 5, Compact: 2, Hash: 1}, {Rev: 6, Compact: 2, Hash: 2},
				{Rev: 5, Compact: 3, Hash: 3}}}, 0},
		{"different alarms",
			&run{statuses: []setup.Status{{Index: 7, Cluster: "a"}, {Index: 8, Cluster: "b"},
				{Index: 8, Cluster: "a"}}}, 1},
		{"a learner answers",
			&run{learners: learners,
				ops: []check.Op{put, with(func(o *check.Op) { o.Kind = check.Get }),
					with(func(o *check.Op) { o.Kind, o.Page = check.Page, &check.Listing{} })}}, 3},
		{"no learner answers", &run{learners: learners, ops: []check.Op{
			with(func(o *check.Op) { o.Kind = check.Local }),
			with(func(o *check.Op) { o.Member = 0 }),
			with(func(o *check.Op) { o.Ret = 6 * time.Second }),
			with(func(o *check.Op) {
				o.Kind, o.Page = check.Page,
					&check.Listing{Serializable: true}
			}), with(func(o *check.Op) { o.Outcome = check.Unknown })}}, 0},
	} {
		c.r.checkEqual()
		c.r.checkLearners()
		if len(c.r.v) != c.want {
			t.Errorf("%s: %d violations, want %d: %v", c.name, len(c.r.v), c.want, c.r.v)
		}
	}
}

// TestRefusedList: a member that refuses an old list is started again with the list that it names.
// A refusal of that list itself is a violation.
func TestRefusedList(t *testing.T) {
	r := &run{}
	for n := range 3 {
		r.places = append(r.places,
			&place{Machine: &world.Machine{Name: fmt.Sprintf("m%d", n),
				Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)})}})
	}
	p := r.places[0]
	line := []byte("--initial-cluster does not match cluster cd11, whose members are ee27=http://10.0.0.2:2380 f75e=http://10.0.0.1:2381: member count is unequal: it has 2 members and --initial-cluster names 3")
	p.given = r.initialCluster([]string{"http://10.0.0.3:2380", "http://10.0.0.2:2380",
		"http://10.0.0.1:2381"})
	if r.refused(p, line); !p.outdated ||
		p.initial != "m0=http://10.0.0.1:2381,m1=http://10.0.0.2:2380" {
		t.Errorf("after an old list: outdated %t, next list %q", p.outdated, p.initial)
	}
	early := []byte("--initial-cluster does not match cluster cd11, whose members are ee27=http://10.0.0.2:2380: member count is unequal: it has 1 members and --initial-cluster names 2")
	p.given, p.outdated = p.initial, false
	if r.refused(p, early); !p.outdated || p.initial != p.given {
		t.Errorf("after the list of a member that does not know the new one: outdated %t, next list %q", p.outdated, p.initial)
	}
	p.given, p.outdated = p.initial, false
	if r.refused(p, line); p.outdated {
		t.Error("the refusal of the right list is allowed")
	}
}

// TestCanLose: bits flip only under a member without which the voters keep a majority.
func TestCanLose(t *testing.T) {
	for _, c := range []struct {
		voters, learners   int
		loses, loseLearner bool
	}{{1, 0, false, true}, {1, 1, false, true}, {2, 1, false, true}, {3, 0, true, true},
		{3, 2, true, true}, {4, 0, true, true}, {5, 1, true, true}} {
		r := &run{}
		for n := range c.voters + c.learners {
			p := &place{Machine: &world.Machine{}}
			if n >= c.voters {
				p.learner = time.Second
			}
			r.places, r.members = append(r.places, p), append(r.members, p.Machine)
		}
		if got := r.canLose(r.places[0]); got != c.loses {
			t.Errorf("%+v: a voter can be lost: %t", c, got)
		}
		if got := r.canLose(r.places[len(r.places)-1]); c.learners > 0 && got != c.loseLearner {
			t.Errorf("%+v: a learner can be lost: %t", c, got)
		}
	}
}

// TestCorrupt: the error of damaged data is allowed when bits have flipped, and no other one.
func TestCorrupt(t *testing.T) {
	for _, c := range []struct {
		flipped bool
		failed  string
		want    int
	}{{true, "page at member 2: " + corrupt, 0}, {false, "page at member 2: " + corrupt, 1},
		{true, "page at member 2: internal error", 1}} {
		r := &run{bitsFlipped: c.flipped}
		if r.reported(nil, []byte(encode(setup.Report{Failed: c.failed}))); len(r.v) != c.want {
			t.Errorf("%+v: %v", c, r.v)
		}
	}
}

// TestLost: the run ends when an operation has an older revision than one that returned before its
// call.
func TestLost(t *testing.T) {
	at := func(s int) time.Duration { return time.Duration(s) * time.Second }
	first := check.Op{Member: -1, Kind: check.Put, Outcome: check.Acked, Call: at(1),
		Ret: at(2), Rev: 7}
	for _, c := range []struct {
		next check.Op
		want bool
	}{
		{check.Op{Member: -1, Kind: check.Get, Outcome: check.Acked, Call: at(3), Ret: at(4),
			Rev: 6}, true},
		{check.Op{Member: -1, Kind: check.Get, Outcome: check.Acked, Call: at(1), Ret: at(4),
			Rev: 6}, false},
		{check.Op{Member: -1, Kind: check.Get, Outcome: check.Acked, Call: at(3), Ret: at(4),
			Rev: 7}, false},
		{check.Op{Member: -1, Kind: check.Local, Outcome: check.Acked, Call: at(3), Ret: at(4),
			Rev: 6}, false},
		{check.Op{Member: -1, Kind: check.Get, Outcome: check.Unknown, Call: at(3),
			Ret: at(4)}, false},
	} {
		r := &run{world: world.New(&world.Guest{}, 1, nil)}
		r.addOp(first)
		if r.addOp(c.next); r.lost != c.want || len(r.v) > 0 != c.want {
			t.Errorf("%v: lost %t, %v", &c.next, r.lost, r.v)
		}
	}
}
