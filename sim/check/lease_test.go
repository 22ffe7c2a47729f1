package check

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// leaseRecord is what clients saw of the leases 1 (expired with two keys), 2 (revoked with a key
// that was that of lease 1 before) and 3 (alive at the end).
type leaseRecord struct {
	h     *History
	ops   []LeaseOp
	terms LeaseTerms
}

func newLeaseRecord() *leaseRecord {
	const s = time.Second
	put := func(key string, lease int64, n int, create, mod, version int64) Event {
		return Event{Item: Item{LeasePrefix + key, LeaseValue(lease, n), create, mod, version}}
	}
	gone := func(key string,
		mod int64) Event {
		return Event{Item{Key: LeasePrefix + key, Mod: mod}, true}
	}
	attach := func(key string, lease int64, n int, at time.Duration, rev int64) LeaseOp {
		return LeaseOp{Kind: Attach, Lease: lease, Key: LeasePrefix + key,
			Value: LeaseValue(lease, n), Call: at, Ret: at + s/10, Outcome: Acked, Rev: rev}
	}
	r := &leaseRecord{h: &History{Base: 1, Start: map[string]Item{}}}
	for rev, events := range [][]Event{
		{put("a", 1, 1, 2, 2, 1)},
		{put("b", 1, 2, 3, 3, 1)},
		{put("c", 1, 3, 4, 4, 1)},
		{put("c", 2, 4, 4, 5, 2)},
		{gone("a", 6), gone("b", 6)},
		{gone("c", 7)},
	} {
		at := []time.Duration{2 * s, 3 * s, 4 * s, 6 * s, 12 * s, 13 * s}[rev]
		r.h.Revs = append(r.h.Revs, Revision{at, events})
	}
	r.ops = []LeaseOp{
		{Kind: Grant, Lease: 3, Call: 0, Ret: s, Outcome: Acked, TTL: 600 * s},
		{Kind: Grant, Lease: 1, Call: s, Ret: s + s/10, Outcome: Acked, TTL: 5 * s},
		attach("a", 1, 1, 2*s, 2),
		attach("b", 1, 2, 3*s, 3),
		attach("c", 1, 3, 4*s, 4),
		{Kind: TimeLeft, Lease: 1, Call: 5 * s, Ret: 5*s + s/10, Outcome: Acked, TTL: 5 * s,
			Left: s, Keys: []string{"lease/a", "lease/b", "lease/c"}},
		{Kind: Grant, Lease: 2, Call: 5 * s, Ret: 6 * s, Outcome: Acked, TTL: 20 * s},
		attach("c", 2, 4, 6*s, 5),
		{Kind: KeepAlive, Lease: 1, Call: 6 * s, Ret: 7 * s, Outcome: Acked, TTL: 5 * s},
		{Kind: List, Call: 8 * s, Ret: 9 * s, Outcome: Acked, Leases: []int64{1, 2, 3}},
		{Kind: TimeLeft, Lease: 1, Call: 9 * s, Ret: 9*s + s/10, Outcome: Acked, TTL: 5 * s,
			Left: 2 * s, Keys: []string{"lease/a", "lease/b"}},
		{Kind: Revoke, Lease: 2, Call: 13 * s, Ret: 13*s + s/10, Outcome: Acked, Rev: 7},
		{Kind: TimeLeft, Lease: 1, Call: 14 * s, Ret: 15 * s, Outcome: Acked, Gone: true},
		{Kind: TimeLeft, Lease: 2, Call: 15 * s, Ret: 16 * s, Outcome: Acked, Gone: true},
		{Kind: List, Call: 17 * s, Ret: 18 * s, Outcome: Acked, Leases: []int64{3}},
	}
	r.terms = LeaseTerms{Election: s, Stable: 0, Late: s}
	return r
}

func (r *leaseRecord) check() Violations {
	v := CheckLeases(r.h, r.ops, r.terms)
	checkHistory(&v, r.h)
	return v
}

// op returns the nth call of a kind about a lease.
func (r *leaseRecord) op(k Kind, lease int64, nth int) *LeaseOp {
	for i := range r.ops {
		if o := &r.ops[i]; o.Kind == k && o.Lease == lease {
			if nth == 0 {
				return o
			}
			nth--
		}
	}
	panic("no such call")
}

func TestLeases(t *testing.T) {
	if v := newLeaseRecord().check(); len(v) > 0 {
		t.Fatal(strings.Join(v, "\n"))
	}
	const s = time.Second
	fast := Clocks{{At: 2 * s, PPM: 200_000}, {At: 100 * s}}
	tests := []struct {
		name, want string // empty: no violation
		tamper     func(*leaseRecord)
	}{
		{"keys deleted early", "ended early", func(r *leaseRecord) { r.h.at(6).Seen = 10 * s }},
		{"early by fast clocks", "",
			func(r *leaseRecord) { r.h.at(6).Seen, r.terms.Clocks = 10*s+s/5, fast }},
		{"too early for fast clocks", "ended early",
			func(r *leaseRecord) { r.h.at(6).Seen, r.terms.Clocks = 9*s+s/2, fast }},
		{"gone early", "ended early", func(r *leaseRecord) {
			o := r.op(TimeLeft, 1, 1)
			o.Gone, o.TTL = true, 0
		}},
		{"keys that remain", "its keys [lease/a lease/b] remain",
			func(r *leaseRecord) { r.h.Revs = r.h.Revs[:4] }},
		{"a key that remains", "only a part",
			func(r *leaseRecord) { r.h.at(6).Events = r.h.at(6).Events[:1] }},
		{"two revisions", "only a part", func(r *leaseRecord) {
			last := r.h.at(6).Events[1]
			last.Mod = 7
			r.h.at(6).Events = r.h.at(6).Events[:1]
			r.h.at(7).Events = []Event{last}
		}},
		{"keys of two leases", "of the leases", func(r *leaseRecord) {
			last := r.h.at(7).Events[0]
			last.Mod = 6
			r.h.at(6).Events = append(r.h.at(6).Events, last)
			r.h.Revs = r.h.Revs[:5]
		}},
		{"a key after the end", "got the key", func(r *leaseRecord) {
			r.h.Revs = append(r.h.Revs,
				Revision{20 * s, []Event{{Item: Item{"lease/a", LeaseValue(1, 9), 8, 8, 1}}}})
		}},
		{"alive again", "exists again", func(r *leaseRecord) {
			r.ops = append(r.ops,
				LeaseOp{Kind: KeepAlive, Lease: 1, Call: 16 * s, Ret: 17 * s,
					Outcome: Acked, TTL: 5 * s})
		}},
		{"alive after its keys", "which deleted its keys", func(r *leaseRecord) {
			o := r.op(TimeLeft, 1, 2)
			o.Gone, o.TTL, o.Left = false, 5*s, s
		}},
		{"alive after its revocation", "after its revocation", func(r *leaseRecord) {
			o := r.op(TimeLeft, 2, 0)
			o.Gone, o.TTL, o.Left = false, 20*s, 11*s
		}},
		{"a revocation without its keys", "outlive",
			func(r *leaseRecord) { r.op(Revoke, 2, 0).Rev = 6 }},
		{"no end", "did not end", func(r *leaseRecord) {
			o := r.op(TimeLeft, 1, 2)
			o.Gone, o.Call = false, 14*s+s/2
			r.h.at(6).Seen = 30 * s
		}},
		{"another TTL", "was granted for",
			func(r *leaseRecord) { r.op(KeepAlive, 1, 0).TTL = 6 * s }},
		{"a lost key", "is lost", func(r *leaseRecord) { r.op(Attach, 1, 0).Value = "0 0" }},
		{"too much time", "too much time",
			func(r *leaseRecord) { r.op(TimeLeft, 1, 0).Left = 7 * s }},
		{"too little time", "too little time",
			func(r *leaseRecord) { r.op(TimeLeft, 1, 1).Left = 0 }},
		{"old keys", "neither then nor later",
			func(r *leaseRecord) {
				r.op(TimeLeft, 1, 1).Keys = []string{"lease/a",
					"lease/b", "lease/c"}
			}},
		{"a list without a lease", "does not list it",
			func(r *leaseRecord) { r.op(List, 0, 1).Leases = nil }},
		{"a list with an old lease", "a member lists it",
			func(r *leaseRecord) { r.op(List, 0, 1).Leases = []int64{2, 3} }},
		{"a key that is put twice", "put twice", func(r *leaseRecord) {
			e := r.h.at(5).Events[0]
			e.Mod, e.Version = 6, 3
			r.h.at(6).Events[0].Mod, r.h.at(6).Events[1].Mod, r.h.at(7).Events[0].Mod = 7, 7, 8
			r.h.Revs = slices.Insert(r.h.Revs, 4, Revision{7 * s, []Event{e}})
		}},
		{"a rejected key", "rejected key",
			func(r *leaseRecord) { r.op(Attach, 1, 1).Outcome = Refused }},
		{"a key of a lease that is gone", "rejected key",
			func(r *leaseRecord) { r.op(Attach, 2, 0).Gone = true }},
		{"an end with another change", "changes others", func(r *leaseRecord) {
			r.h.at(7).Events = append(r.h.at(7).Events, Event{Item: Item{"k/a", "x", 7, 7, 1}})
		}},
		{"a list with a lease whose keys are deleted", "a member lists it", func(r *leaseRecord) {
			r.op(TimeLeft, 1, 2).Outcome = Unknown
			r.op(List, 0, 1).Leases = []int64{1, 3}
		}},
		{"time that does not pass", "too much time",
			func(r *leaseRecord) { r.op(TimeLeft, 1, 1).Left = 5*s + s/2 }},
		{"an unknown revocation", "", func(r *leaseRecord) {
			r.h.at(6).Seen = 10 * s
			r.ops = append(r.ops,
				LeaseOp{Kind: Revoke, Lease: 1, Call: 9 * s, Ret: 30 * s, Outcome: Unknown})
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newLeaseRecord()
			r.ops = slices.Clone(r.ops)
			test.tamper(r)
			v := strings.Join(r.check(), "\n")
			if test.want == "" && v != "" || !strings.Contains(v, test.want) {
				t.Errorf("want %q:\n%s", test.want, v)
			}
		})
	}
}
