package scenario

import (
	"testing"
	"time"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

// TestChecksOfMembers: records that break a promise are violations, and those that do not are none.
func TestChecksOfMembers(t *testing.T) {
	put := check.Op{Member: 1, Kind: check.Put, Outcome: check.Acked, Call: 3 * time.Second, Ret: 4 * time.Second}
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
		{"different hashes", &run{hashes: []setup.Hash{{Rev: 5, Compact: 2, Hash: 1}, {Rev: 5, Compact: 2, Hash: 2}}}, 1},
		{"hashes of other revisions", &run{hashes: []setup.Hash{{Rev: 5, Compact: 2, Hash: 1}, {Rev: 6, Compact: 2, Hash: 2}, {Rev: 5, Compact: 3, Hash: 3}}}, 0},
		{"different alarms", &run{statuses: []setup.Status{{Index: 7, Cluster: "a"}, {Index: 8, Cluster: "b"}, {Index: 8, Cluster: "a"}}}, 1},
		{"a learner answers", &run{learners: learners, ops: []check.Op{put, with(func(o *check.Op) { o.Kind = check.Get }),
			with(func(o *check.Op) { o.Kind, o.Page = check.Page, &check.Listing{} })}}, 3},
		{"no learner answers", &run{learners: learners, ops: []check.Op{
			with(func(o *check.Op) { o.Kind = check.Local }), with(func(o *check.Op) { o.Member = 0 }), with(func(o *check.Op) { o.Ret = 6 * time.Second }),
			with(func(o *check.Op) { o.Kind, o.Page = check.Page, &check.Listing{Serializable: true} }), with(func(o *check.Op) { o.Outcome = check.Unknown })}}, 0},
	} {
		c.r.checkEqual()
		c.r.checkLearners()
		if len(c.r.v) != c.want {
			t.Errorf("%s: %d violations, want %d: %v", c.name, len(c.r.v), c.want, c.r.v)
		}
	}
}
