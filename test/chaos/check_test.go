package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// sim is a correct store in memory with clients and a watcher that record answers and events.
type sim struct {
	rng  *rand.Rand
	now  time.Duration
	data map[string]item
	h    *history
	ops  []op
	w    record
}

func simulate(seed uint64, n int) *sim {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 0)), data: map[string]item{}, h: &history{Base: 10, Start: map[string]item{}}}
	s.data["k/a"] = item{"k/a", "old", 5, 9, 3}
	s.h.Start["k/a"] = s.data["k/a"]
	s.w = record{Name: "w", Next: 11}
	for i := range n {
		o := op{Client: i % 3, Key: keys[s.rng.IntN(3)], Value: fmt.Sprint(i), Outcome: acked}
		o.Kind = []kind{put, pair, get, cas, del, scan, local, pinned}[s.rng.IntN(8)]
		if s.rng.IntN(10) == 0 {
			o.Outcome = unknown
		}
		o.Call = s.tick()
		s.apply(&o)
		o.Ret = s.tick()
		if o.Outcome == unknown {
			o.Rev, o.Done, o.Deleted, o.Found = 0, false, 0, nil
		}
		s.ops = append(s.ops, o)
		if s.rng.IntN(10) == 0 {
			s.w.Messages = append(s.w.Messages, message{At: s.tick(), Rev: s.h.last()})
		}
	}
	// Let operations of different clients overlap.
	for i := range s.ops {
		s.ops[i].Call -= time.Duration(s.rng.IntN(4))
		s.ops[i].Ret += time.Duration(s.rng.IntN(4))
	}
	slices.SortFunc(s.ops, func(a, b op) int { return int(a.Call - b.Call) })
	return s
}

func (s *sim) tick() time.Duration { s.now += 2; return s.now }

func (s *sim) apply(o *op) {
	rev := s.h.last() + 1
	was, there := s.data[o.Key]
	var events []event
	switch o.Kind {
	case put:
		events = []event{{item: s.next(o.Key, o.Value, rev)}}
	case pair:
		o.Second = keys[(slices.Index(keys, o.Key)+1)%3]
		events = []event{{item: s.next(o.Key, o.Value, rev)}, {item: s.next(o.Second, o.Value, rev)}}
	case cas:
		o.Expect = was.Mod - int64(s.rng.IntN(2))
		if o.Done = o.Expect == was.Mod; o.Done {
			events = []event{{item: s.next(o.Key, o.Value, rev)}}
		} else if there {
			o.Found = []item{was}
		}
	case del:
		if there {
			o.Deleted = 1
			events = []event{{item{Key: o.Key, Mod: rev}, true}}
		}
	case get:
		if there {
			o.Found = []item{was}
		}
	default:
		if o.Expect = s.h.last(); o.Kind == pinned {
			o.Expect -= int64(s.rng.IntN(20))
		}
		if o.Expect >= s.h.Base {
			o.Found = s.h.timeline().states(o.Expect)
		}
	}
	if events != nil {
		// Half of the lost requests are not applied.
		if o.Outcome == unknown && s.rng.IntN(2) == 0 {
			return
		}
		at := s.tick()
		m := message{At: at, Events: events}
		for _, e := range events {
			m.Before = append(m.Before, nil)
			if was, ok := s.data[e.Key]; ok {
				m.Before[len(m.Before)-1] = &was
			}
		}
		s.w.Messages = append(s.w.Messages, m)
		for _, e := range events {
			if s.data[e.Key] = e.item; e.Deleted {
				delete(s.data, e.Key)
			}
		}
		s.h.Revs = append(s.h.Revs, revision{at, slices.Clone(events)})
	}
	o.Rev = s.h.last()
}

func (s *sim) next(key, value string, rev int64) item {
	was, ok := s.data[key]
	if !ok {
		return item{key, value, rev, rev, 1}
	}
	return item{key, value, was.Create, rev, was.Version + 1}
}

func (s *sim) check() violations {
	v := check(s.h, s.ops, time.Minute)
	v = append(v, checkLocal(s.ops)...)
	return append(v, checkWatch(s.h, s.h.timeline(), &s.w, 0)...)
}

// op returns a random operation that a condition holds for.
func (s *sim) op(which func(*op) bool) *op {
	for {
		if o := &s.ops[len(s.ops)/4+s.rng.IntN(len(s.ops)/2)]; which(o) {
			return o
		}
	}
}

// message returns the index of a random message to the watcher with at least so many events.
func (s *sim) message(events int) int {
	for {
		n := len(s.w.Messages)/4 + s.rng.IntN(len(s.w.Messages)/2)
		if len(s.w.Messages[n].Events) >= events {
			return n
		}
	}
}

func TestCorrect(t *testing.T) {
	for seed := range uint64(30) {
		if v := simulate(seed, 400).check(); len(v) > 0 {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(v, "\n"))
		}
	}
}

// TestTampered makes one change in a correct record; the corresponding check must find it.
func TestTampered(t *testing.T) {
	wrote := func(o *op) bool { return o.Outcome == acked && o.wrote() }
	reads := func(k ...kind) func(*op) bool {
		return func(o *op) bool { return o.Outcome == acked && slices.Contains(k, o.Kind) && len(o.Found) > 0 }
	}
	tests := []struct {
		name, want string
		tamper     func(*sim)
	}{
		{"a lost write", "lost", func(s *sim) {
			o := s.op(func(o *op) bool { return o.Kind == put && o.Outcome == acked })
			s.h.at(o.Rev).Events[0].Value = "another"
		}},
		{"a write beyond the end", "lost", func(s *sim) { s.op(wrote).Rev = s.h.last() + 1 }},
		{"a revision for two", "acknowledged twice", func(s *sim) {
			a := s.op(wrote)
			s.op(func(o *op) bool { return wrote(o) && o != a }).Rev = a.Rev
		}},
		{"half a transaction", "lost", func(s *sim) {
			o := s.op(func(o *op) bool { return o.Kind == pair && o.Outcome == acked })
			r := s.h.at(o.Rev)
			r.Events = r.Events[:1]
		}},
		{"a write without an operation", "no operation", func(s *sim) {
			o := s.op(func(o *op) bool { return o.Kind == put && o.Outcome == acked })
			s.ops = slices.DeleteFunc(s.ops, func(p op) bool { return p.Value == o.Value })
		}},
		{"a deletion without an operation", "no operation", func(s *sim) {
			o := s.op(func(o *op) bool { return o.Kind == del && o.Outcome == acked && o.Deleted == 1 })
			rev := o.Rev
			s.ops = slices.DeleteFunc(s.ops, func(p op) bool { return p.Rev == rev || p.Kind == del && p.Outcome == unknown })
		}},
		{"a rejected write that was applied", "contradicts", func(s *sim) {
			o := s.op(func(o *op) bool { return o.Kind == put && o.Outcome == acked })
			o.Outcome = refused
		}},
		{"a stale read", "stale", func(s *sim) {
			o := s.op(func(o *op) bool { return o.Outcome == acked && o.Kind == scan && o.Rev > s.h.Base+10 })
			o.Rev -= 8
			o.Found = s.h.timeline().states(o.Rev)
		}},
		{"a stale read of one key", "no order explains", func(s *sim) {
			t := s.h.timeline()
			o := s.op(func(o *op) bool {
				was, ok := t.state(o.Key, o.Rev-12)
				return o.Outcome == acked && o.Kind == get && ok && len(o.Found) == 1 && o.Found[0] != was
			})
			o.Rev -= 12
			o.Found = t.one(o.Key, o.Rev)
		}},
		{"a read of the future", "before that was asked for", func(s *sim) {
			o := s.op(func(o *op) bool { return o.Outcome == acked && o.Kind == scan && o.Rev < s.h.last()-10 })
			o.Rev += 8
			o.Found = s.h.timeline().states(o.Rev)
		}},
		{"a wrong value", "what was not there", func(s *sim) { s.op(reads(get, scan, local, pinned)).Found[0].Value = "wrong" }},
		{"a wrong version", "what was not there", func(s *sim) { s.op(reads(get, scan, cas, pinned)).Found[0].Version++ }},
		{"a missing key", "what was not there", func(s *sim) {
			o := s.op(reads(scan, local))
			o.Found = o.Found[1:]
		}},
		{"a condition that did not hold", "judged wrongly", func(s *sim) {
			s.op(func(o *op) bool { return o.Outcome == acked && o.Kind == cas && o.Done }).Expect++
		}},
		{"a deletion that found nothing", "deleted", func(s *sim) {
			o := s.op(func(o *op) bool { return o.Outcome == acked && o.Kind == del && o.Deleted == 0 })
			o.Deleted = 1
		}},
		{"a version in the history", "follows", func(s *sim) {
			o := s.op(func(o *op) bool { return o.Outcome == acked && o.Kind == put })
			s.h.at(o.Rev).Events[0].Version++
		}},
		{"a member that goes back", "went back", func(s *sim) {
			all := []*op{}
			for n := range s.ops {
				if o := &s.ops[n]; o.Kind == local && o.Outcome == acked && o.Client == 0 {
					all = append(all, o)
				}
			}
			o := all[len(all)-1]
			o.Rev = all[0].Rev - 1
		}},
		{"a missing event", "not reliable", func(s *sim) {
			n := s.message(1)
			s.w.Messages = slices.Delete(s.w.Messages, n, n+1)
		}},
		{"missing last events", "never sent", func(s *sim) {
			for len(s.w.Messages[len(s.w.Messages)-1].Events) == 0 {
				s.w.Messages = s.w.Messages[:len(s.w.Messages)-1]
			}
			s.w.Messages = s.w.Messages[:len(s.w.Messages)-1]
		}},
		{"a message twice", "not unique", func(s *sim) {
			n := s.message(1)
			s.w.Messages = slices.Insert(s.w.Messages, n, s.w.Messages[n])
		}},
		{"two messages exchanged", "not reliable", func(s *sim) {
			n := s.message(1)
			m := n + 1
			for len(s.w.Messages[m].Events) == 0 {
				m++
			}
			s.w.Messages[n], s.w.Messages[m] = s.w.Messages[m], s.w.Messages[n]
		}},
		{"a revision in two messages", "not atomic", func(s *sim) {
			n := s.message(2)
			a, b := s.w.Messages[n], s.w.Messages[n]
			a.Events, b.Events = a.Events[:1], b.Events[1:]
			s.w.Messages[n] = a
			s.w.Messages = slices.Insert(s.w.Messages, n+1, b)
		}},
		{"progress too early", "bookmarkable", func(s *sim) {
			n := s.message(1)
			s.w.Messages = slices.Insert(s.w.Messages, n, message{At: s.w.Messages[n].At, Rev: s.w.Messages[n].Events[0].Mod})
		}},
		{"a former value", "before", func(s *sim) {
			n := s.message(1)
			s.w.Messages[n].Before[0] = &item{Key: "k/a", Value: "wrong"}
		}},
		{"a compaction that was not requested", "not requested", func(s *sim) {
			s.w.Messages = slices.Insert(s.w.Messages, 5, message{Rev: 20, Compacted: true})
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for seed := range uint64(10) {
				s := simulate(seed, 400)
				test.tamper(s)
				if v := s.check(); !strings.Contains(strings.Join(v, "\n"), test.want) {
					t.Fatalf("seed %d: not found; instead:\n%s", seed, strings.Join(v, "\n"))
				}
			}
		})
	}
}

// TestUncertainty checks what is no violation: a deletion of unknown outcome that explains a tombstone, a
// write of unknown outcome that came late, and a watcher that received a compaction.
func TestUncertainty(t *testing.T) {
	h := &history{Base: 1, Start: map[string]item{"k/a": {"k/a", "x", 1, 1, 1}}, Revs: []revision{
		{30, []event{{item{Key: "k/a", Mod: 2}, true}}},
		{90, []event{{item: item{"k/a", "late", 3, 3, 1}}}},
	}}
	ops := []op{
		{Client: 1, Kind: put, Key: "k/a", Value: "late", Call: 5, Ret: 10, Outcome: unknown},
		{Client: 2, Kind: del, Key: "k/a", Call: 6, Ret: 12, Outcome: unknown},
		{Client: 3, Kind: get, Key: "k/a", Call: 40, Ret: 50, Outcome: acked, Rev: 2},
		{Client: 3, Kind: put, Key: "k/a", Value: "never", Call: 60, Ret: 70, Outcome: unknown},
	}
	if v := check(h, ops, time.Minute); len(v) > 0 {
		t.Error(strings.Join(v, "\n"))
	}
	w := record{Name: "w", Next: 2, Messages: []message{{Rev: 3, Compacted: true}, {Events: h.Revs[1].Events, Before: []*item{nil}}}}
	if v := checkWatch(h, h.timeline(), &w, 3); len(v) > 0 {
		t.Error(strings.Join(v, "\n"))
	}
	if v := checkWatch(h, h.timeline(), &w, 2); len(v) == 0 {
		t.Error("a compaction that was not requested was accepted")
	}
}
