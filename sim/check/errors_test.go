package check

import (
	"testing"
	"time"
)

// TestRevisions: errors about revisions that a member must be able to read.
func TestRevisions(t *testing.T) {
	const compacted, future = "get: " + compactedText, "rpc error: " + futureText + ": it is 4"
	compactions := Compactions{{At: 10, Rev: 4}, {At: 20, Rev: 8}, {At: 25, Rev: 6}}
	page := func(rev int64,
		serializable bool) *Listing {
		return &Listing{Rev: rev, Serializable: serializable}
	}
	put := Op{Kind: Put, Outcome: Acked, Ret: 2, Rev: 9}
	for _, c := range []struct {
		name string
		o    Op
		bad  int
	}{
		{"below the compaction", Op{Kind: Pinned, Expect: 3, Err: compacted}, 0},
		{"at the compaction", Op{Kind: Pinned, Expect: 4, Err: compacted}, 1},
		{"below the next compaction", Op{Kind: Pinned, Expect: 7, Ret: 30, Err: compacted}, 0},
		{"before the next compaction", Op{Kind: Pinned, Expect: 7, Ret: 19, Err: compacted}, 1},
		{"a page", Op{Kind: Page, Page: page(7, true), Ret: 19, Err: compacted}, 1},
		{"the newest page", Op{Kind: Page, Page: page(0, false), Ret: 30, Err: compacted}, 1},
		{"the newest state", Op{Kind: Get, Ret: 30, Err: compacted}, 1},
		{"a write", Op{Kind: Put, Err: future}, 1},
		{"a revision that the member may not have", Op{Kind: Pinned, Expect: 9, Err: future}, 0},
		{"a page that the member may not have",
			Op{Kind: Page, Page: page(9, true), Err: future}, 0},
		{"a page that a voter has", Op{Kind: Page, Page: page(9, false), Err: future}, 1},
		{"a page that is not there", Op{Kind: Page, Page: page(10, false), Err: future}, 0},
		{"another error", Op{Kind: Get, Err: "etcdserver: no leader"}, 0},
	} {
		c.o.Outcome, c.o.Call, c.o.Ret = Refused, 3, max(c.o.Ret, 19)
		if v := CheckRevisions([]Op{put, c.o}, compactions); len(v) != c.bad {
			t.Errorf("%s: %q", c.name, v)
		}
	}
}

// TestErrors: members reject valid requests only with errors that faults explain.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err    string
		causes [][]string
		bad    int
	}{
		{"context deadline exceeded", nil, 0},
		{`put "k/a" at 10.0.0.1:2379: etcdserver: request timed out, possibly due to connection lost`, nil, 0},
		{"no member can be reached; a: etcdserver: no leader; b: etcdserver: server stopped", nil,
			0},
		{"no member can be reached; a: etcdserver: no leader; b: etcdserver: duplicate key given in txn request", nil, 1},
		{"etcdserver: permission denied", [][]string{UserTokens}, 1},
		{"etcdserver: invalid auth token", [][]string{UserTokens}, 0},
		{"etcdserver: invalid auth token", nil, 1},
		{noSpaceText, nil, 1},
		{noSpaceText, [][]string{UserTokens, FullDisks}, 0},
		{"etcdserver: corrupt cluster", [][]string{FullDisks}, 1},
		{"etcdserver: corrupt cluster", [][]string{DamagedFiles}, 0},
	} {
		o := Op{Kind: Get, Outcome: Refused, Err: c.err, Ret: time.Second}
		if v := CheckErrors([]Op{o}, c.causes...); len(v) != c.bad {
			t.Errorf("%s: %q", c.err, v)
		}
	}
	for kind, bad := range map[Kind]int{Pair: 0, Put: 1} {
		if v := CheckErrors([]Op{{Kind: kind, Outcome: Refused,
			Err: "txn: " + tooLargeText}}); len(v) != bad {
			t.Errorf("%s that is too large: %q", kind, v)
		}
	}
}
