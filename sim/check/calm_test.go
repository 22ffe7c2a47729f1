package check

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const sec = time.Second

func promptFrom(from, to time.Duration) *Prompt {
	return &Prompt{Spans: []Span{{From: from, To: to, Members: map[int]bool{0: true, 1: true}}},
		Answer: sec, Delay: 2 * sec, Reconnect: 14 * sec, Silence: 9 * sec}
}

// TestAnswers: failures, slow answers and members that lag are violations if nothing disturbs the
// cluster.
func TestAnswers(t *testing.T) {
	put := Op{Kind: Put, Member: -1, Outcome: Acked, Call: 11 * sec, Ret: 11*sec + 1, Rev: 7}
	for _, c := range []struct {
		name, want string
		o          Op
	}{
		{"a failure", "failed", Op{Outcome: Unknown, Err: "etcdserver: request timed out"}},
		{"a timeout", "failed",
			Op{Outcome: Unknown, Ret: 23 * sec, Err: "context deadline exceeded"}},
		{"a rejected write", "failed", Op{Outcome: Refused, Err: noSpaceText}},
		{"a failure that ends after a fault has begun", "failed",
			Op{Call: 37 * sec, Ret: 41 * sec, Outcome: Unknown, Err: "context deadline exceeded"}},
		{"a failure in a fault", "",
			Op{Call: 41 * sec, Ret: 42 * sec, Outcome: Unknown,
				Err: "etcdserver: request timed out"}},
		{"a failure when a fault begins", "",
			Op{Call: 39*sec + 1, Ret: 42 * sec, Outcome: Unknown,
				Err: "etcdserver: request timed out"}},
		{"a failure of no member", "",
			Op{Member: 2, Outcome: Unknown, Err: "no member can be reached"}},
		{"a client that gives up early", "", Op{Outcome: Unknown, Err: "context canceled"}},
		{"a compacted revision", "", Op{Kind: Pinned, Outcome: Refused, Err: compactedText}},
		{"two large values", "", Op{Kind: Pair, Outcome: Refused, Err: tooLargeText}},
		{"a large value", "failed", Op{Kind: Put, Outcome: Refused, Err: tooLargeText}},
		{"a slow answer", "slow", Op{Outcome: Acked, Ret: 22 * sec, Rev: 7}},
		{"a slow answer when a fault begins", "",
			Op{Outcome: Acked, Call: 39*sec + 1, Ret: 42 * sec, Rev: 7}},
		{"a member that lags", "lags", Op{Kind: Local, Member: 1, Outcome: Acked, Rev: 6}},
		{"a member that lags for a moment", "",
			Op{Kind: Local, Member: 1, Outcome: Acked, Call: 12 * sec, Rev: 6}},
		{"a mirror that lags", "lags", Op{Kind: Mirror, Outcome: Acked, Rev: 6}},
		{"a serializable page that lags", "lags",
			Op{Kind: Page, Page: &Listing{Serializable: true}, Outcome: Acked, Rev: 6}},
		{"a former page", "",
			Op{Kind: Page, Page: &Listing{Serializable: true, Rev: 3}, Outcome: Acked, Rev: 6}},
		{"a member that has everything", "", Op{Kind: Local, Member: 1, Outcome: Acked, Rev: 7}},
		{"a member that lags in a fault", "",
			Op{Kind: Local, Member: 1, Outcome: Acked, Call: 41 * sec, Rev: 6}},
	} {
		if c.o.Kind == "" {
			c.o.Kind = Put
		}
		if c.o.Call == 0 {
			c.o.Call = 20 * sec
		}
		c.o.Ret = max(c.o.Ret, c.o.Call+sec/2)
		answer := Op{Kind: Put, Member: c.o.Member, Outcome: Acked, Call: 11 * sec,
			Ret: 11*sec + 1, Rev: 7}
		got := strings.Join(CheckAnswers([]Op{put, answer, c.o}, promptFrom(10*sec, 40*sec)), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q, got %q", c.name, c.want, got)
		}
	}
	lost := Op{Kind: Put, Call: 20 * sec, Ret: 21 * sec, Outcome: Unknown, Err: "connection reset"}
	if v := CheckAnswers([]Op{put, {Kind: Put, Call: 5 * sec, Ret: 6 * sec, Outcome: Acked}, lost},
		promptFrom(10*sec, 40*sec)); len(v) > 0 {
		t.Errorf("a client without an answer since the fault: %q", v)
	}
	p := promptFrom(10*sec, 40*sec)
	p.Full = true
	if v := CheckAnswers([]Op{{Kind: Put, Outcome: Acked, Call: 11 * sec, Ret: 12 * sec},
		{Kind: Put, Call: 20 * sec, Ret: 21 * sec, Outcome: Refused, Err: noSpaceText}},
		p); len(v) > 0 {
		t.Error(v)
	}
}

// TestDelivery: events that arrive late and watchers that are silent are violations if nothing
// disturbs the cluster.
func TestDelivery(t *testing.T) {
	h := &History{Base: 1, Revs: []Revision{
		{5 * sec, []Event{{Item: Item{"k/a", "1", 2, 2, 1}}}},
		{20 * sec, []Event{{Item: Item{"k/a", "2", 2, 3, 2}}}},
		{30 * sec, []Event{{Item: Item{"k/b", "3", 4, 4, 1}}}},
	}}
	event := func(at time.Duration,
		n int) Message {
		return Message{At: at, Events: h.Revs[n].Events}
	}
	progress := func(at time.Duration, rev int64) Message { return Message{At: at, Rev: rev} }
	for _, c := range []struct {
		name, want string
		member     int
		r          Record
	}{
		{"in time", "", 0, Record{Next: 2,
			Messages: []Message{event(9*sec, 0), progress(19*sec, 2), event(21*sec, 1),
				event(30*sec, 2), progress(39*sec, 4)}}},
		{"late", "late", 0, Record{Next: 2,
			Messages: []Message{event(9*sec, 0), progress(19*sec, 2), event(23*sec, 1),
				event(30*sec, 2), progress(39*sec, 4)}}},
		{"late, with the next event", "late", 0,
			Record{Next: 2, Messages: []Message{event(9*sec, 0), progress(19*sec, 2),
				progress(22*sec, 2), event(30*sec, 1), event(30*sec, 2)}}},
		{"never", "late", 0,
			Record{Next: 2, Messages: []Message{event(9*sec, 0), progress(19*sec, 2),
				event(21*sec, 1), progress(29*sec, 3), progress(39*sec, 3)}}},
		{"late elsewhere", "", 3,
			Record{Next: 2, Messages: []Message{event(23*sec, 0), event(23*sec, 1)}}},
		{"other keys", "", -1,
			Record{Next: 2, From: "k/b", To: "k/c",
				Messages: []Message{progress(19*sec, 2), progress(28*sec, 3), event(30*sec, 2),
					progress(39*sec, 4)}}},
		{"silent", "silent", -1,
			Record{Next: 2, From: "k/b", To: "k/c",
				Messages: []Message{progress(9*sec, 2), progress(15*sec, 2), event(30*sec, 2)}}},
		{"silent at the end", "silent", -1,
			Record{Next: 2, From: "k/c", To: "k/d",
				Messages: []Message{progress(15*sec, 2), progress(24*sec, 3),
					progress(29*sec, 3)}}},
		{"silent without news", "", -1,
			Record{Next: 2, Messages: []Message{event(9*sec, 0), progress(15*sec, 2),
				event(21*sec, 1), event(30*sec, 2)}}},
		{"from a future revision", "", -1, Record{Next: 5}},
		{"connected late", "", 0,
			Record{Next: 2, Messages: []Message{event(23*sec, 0), event(23*sec, 1),
				event(30*sec, 2)}}},
		{"without a message", "silent", -1, Record{Next: 2, From: "k/c", To: "k/d"}},
		{"after a compaction", "", -1,
			Record{Next: 2, Messages: []Message{{At: 9 * sec, Rev: 3, Compacted: true}}}},
	} {
		got := strings.Join(CheckDelivery(h, &c.r, c.member, promptFrom(10*sec, 40*sec)), "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: want %q, got %q", c.name, c.want, got)
		}
	}
	if p := promptFrom(10*sec, 40*sec); p.span(39*sec, 41*sec) != nil ||
		!slices.Equal([]bool{p.span(10*sec, 40*sec) == nil, p.span(9*sec, 9*sec) == nil},
			[]bool{false, true}) {
		t.Error("a time is in the wrong span")
	}
}

// TestPartialSpan: while the disk of one member hangs, the others are judged, and neither that one
// nor clients that choose among all.
func TestPartialSpan(t *testing.T) {
	p := promptFrom(10*sec, 40*sec)
	p.Spans[0].Partial, p.Spans[0].Change = true, 2*sec
	// What begins to hang at 20 s may hold up the others for 2 s, once.
	slow := func(from, to time.Duration) Op {
		return Op{Kind: Put, Outcome: Acked, Call: from,
			Ret: to, Rev: 8}
	}
	before := Op{Kind: Put, Outcome: Acked, Call: 11 * sec, Ret: 11*sec + 1, Rev: 7}
	for n, c := range []struct {
		ops  []Op
		want int
	}{{[]Op{before, slow(20*sec, 22*sec), slow(21*sec, 23*sec)}, 0},
		{[]Op{before, slow(20*sec, 24*sec)}, 1},
		{[]Op{before, slow(20*sec, 22*sec), slow(25*sec, 27*sec)}, 1}} {
		if v := CheckAnswers(c.ops, p); len(v) != c.want {
			t.Errorf("slow operations %d: %q", n, v)
		}
	}
	ops := func(member int) []Op {
		return []Op{{Kind: Put, Member: member, Outcome: Acked, Call: 11 * sec, Ret: 11*sec + 1,
			Rev: 7}, {Kind: Put, Member: member, Call: 20 * sec, Ret: 24 * sec, Outcome: Unknown,
			Err: "etcdserver: request timed out"}}
	}
	for member, want := range map[int]int{-1: 0, 0: 1, 1: 1, 2: 0} {
		if v := CheckAnswers(ops(member), p); len(v) != want {
			t.Errorf("member %d: %q", member, v)
		}
		var leases []LeaseOp
		for _, o := range ops(member) {
			leases = append(leases,
				LeaseOp{Kind: KeepAlive, At: member + 1, Call: o.Call, Ret: o.Ret,
					Outcome: o.Outcome, Err: o.Err})
		}
		if v := CheckLeaseAnswers(leases, p); len(v) != want {
			t.Errorf("leases at member %d: %q", member, v)
		}
	}
	h := &History{Base: 1, Revs: []Revision{{20 * sec, []Event{{Item: Item{"k/a", "1", 2, 2, 1}}}}}}
	r := Record{Next: 2,
		Messages: []Message{{At: 19 * sec, Rev: 1}, {At: 30 * sec, Events: h.Revs[0].Events}}}
	for member, want := range map[int]bool{-1: false, 0: true, 2: false} {
		if v := CheckDelivery(h, &r, member, p); len(v) > 0 != want {
			t.Errorf("a watcher at member %d: %q", member, v)
		}
	}
}
