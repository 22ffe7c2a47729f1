package check

import (
	"testing"
	"time"
)

// TestCheckAlarms: only a write that needs space, and was made while the alarm was certainly
// active, is a violation.
func TestCheckAlarms(t *testing.T) {
	active := []AlarmOp{{Call: 1 * time.Second, Ret: 2 * time.Second,
		Cleared: 4 * time.Second, Rev: 7}}
	put := Op{Kind: Put, Outcome: Acked, Call: 2500 * time.Millisecond,
		Ret: 3 * time.Second, Rev: 7}
	for _, c := range []struct {
		name   string
		change func(*Op)
		bad    int
	}{
		{"a put", func(*Op) {}, 1},
		{"a transaction", func(o *Op) { o.Kind, o.Done = Cas, true }, 1},
		{"a transaction that put nothing", func(o *Op) { o.Kind = Cas }, 0},
		{"a deletion", func(o *Op) { o.Kind, o.Deleted = Del, 1 }, 0},
		{"a read", func(o *Op) { o.Kind = Get }, 0},
		{"a rejected put", func(o *Op) { o.Outcome = Refused }, 0},
		{"called before the alarm was acknowledged",
			func(o *Op) { o.Call = 1500 * time.Millisecond }, 0},
		{"called before, and written after it",
			func(o *Op) { o.Call, o.Rev = 1500*time.Millisecond, 8 }, 1},
		{"answered after it was cleared", func(o *Op) { o.Ret = 5 * time.Second }, 0},
	} {
		o := put
		c.change(&o)
		if v := CheckAlarms([]Op{o}, nil, active); len(v) != c.bad {
			t.Errorf("%s: %q", c.name, v)
		}
	}
	lease := LeaseOp{Kind: Grant, Outcome: Acked, Call: 2500 * time.Millisecond,
		Ret: 3 * time.Second}
	for _, c := range []struct {
		name   string
		change func(*LeaseOp)
		bad    int
	}{
		{"a lease", func(*LeaseOp) {}, 1},
		{"a key of a lease", func(o *LeaseOp) { o.Kind, o.Rev = Attach, 9 }, 1},
		{"a lease that is gone", func(o *LeaseOp) { o.Kind, o.Gone = Attach, true }, 0},
		{"a keep-alive", func(o *LeaseOp) { o.Kind = KeepAlive }, 0},
		{"a rejected lease", func(o *LeaseOp) { o.Outcome = Refused }, 0},
		{"answered after it was cleared", func(o *LeaseOp) { o.Ret = 5 * time.Second }, 0},
	} {
		o := lease
		c.change(&o)
		if v := CheckAlarms(nil, []LeaseOp{o}, active); len(v) != c.bad {
			t.Errorf("%s: %q", c.name, v)
		}
	}
}
