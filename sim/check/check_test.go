package check

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
	data map[string]Item
	h    *History
	ops  []Op
	w    Record
	// compactions are those that clients requested.
	compactions Compactions
}

var keys = []string{"k/a", "k/b", "k/c", "k/d", "k/e", "k/f"}

func simulate(seed uint64, n int) *sim {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 0)), data: map[string]Item{},
		h: &History{Base: 10, Start: map[string]Item{}}}
	s.data["k/a"] = Item{"k/a", "old", 5, 9, 3}
	s.h.Start["k/a"] = s.data["k/a"]
	s.w = Record{Name: "w", Next: 11}
	for i := range n {
		o := Op{Client: i % 3, Key: keys[s.rng.IntN(3)], Value: fmt.Sprint(i), Outcome: Acked}
		o.Kind = []Kind{Put, Pair, Get, Cas, Del, Scan, Local, Pinned}[s.rng.IntN(8)]
		if s.rng.IntN(10) == 0 {
			o.Outcome = Unknown
		}
		o.Call = s.tick()
		s.apply(&o)
		o.Ret = s.tick()
		if o.Outcome == Unknown {
			o.Rev, o.Done, o.Deleted, o.Found = 0, false, 0, nil
		}
		s.ops = append(s.ops, o)
		if s.rng.IntN(10) == 0 {
			s.w.Messages = append(s.w.Messages, Message{At: s.tick(), Rev: s.h.Last()})
		}
	}
	// Let operations of different clients overlap.
	for i := range s.ops {
		s.ops[i].Call -= time.Duration(s.rng.IntN(4))
		s.ops[i].Ret += time.Duration(s.rng.IntN(4))
	}
	slices.SortFunc(s.ops, func(a, b Op) int { return int(a.Call - b.Call) })
	return s
}

func (s *sim) tick() time.Duration { s.now += 2; return s.now }

func (s *sim) apply(o *Op) {
	rev := s.h.Last() + 1
	was, there := s.data[o.Key]
	var events []Event
	switch o.Kind {
	case Put:
		events = []Event{{Item: s.next(o.Key, o.Value, rev)}}
	case Pair:
		o.Second = keys[(slices.Index(keys, o.Key)+1)%3]
		events = []Event{{Item: s.next(o.Key, o.Value, rev)},
			{Item: s.next(o.Second, o.Value, rev)}}
	case Cas:
		o.Expect = was.Mod - int64(s.rng.IntN(2))
		if o.Done = o.Expect == was.Mod; o.Done {
			events = []Event{{Item: s.next(o.Key, o.Value, rev)}}
		} else if there {
			o.Found = []Item{was}
		}
	case Del:
		if there {
			o.Deleted = 1
			events = []Event{{Item{Key: o.Key, Mod: rev}, true}}
		}
	case Get:
		if there {
			o.Found = []Item{was}
		}
	default:
		if o.Expect = s.h.Last(); o.Kind == Pinned {
			o.Expect -= int64(s.rng.IntN(20))
		}
		if o.Expect >= s.h.Base {
			o.Found = s.h.Timeline().states(o.Expect)
		}
	}
	if events != nil {
		// Half of the lost requests are not applied.
		if o.Outcome == Unknown && s.rng.IntN(2) == 0 {
			return
		}
		at := s.tick()
		m := Message{At: at, Events: events}
		for _, e := range events {
			m.Before = append(m.Before, nil)
			if was, ok := s.data[e.Key]; ok {
				m.Before[len(m.Before)-1] = &was
			}
		}
		s.w.Messages = append(s.w.Messages, m)
		for _, e := range events {
			if s.data[e.Key] = e.Item; e.Deleted {
				delete(s.data, e.Key)
			}
		}
		s.h.Revs = append(s.h.Revs, Revision{at, slices.Clone(events)})
	}
	o.Rev = s.h.Last()
}

func (s *sim) next(key, value string, rev int64) Item {
	was, ok := s.data[key]
	if !ok {
		return Item{key, value, rev, rev, 1}
	}
	return Item{key, value, was.Create, rev, was.Version + 1}
}

func (s *sim) check() Violations {
	v := Check(s.h, s.ops, time.Minute)
	v = append(v, CheckLocal(s.ops)...)
	return append(v, CheckWatch(s.h, s.h.Timeline(), &s.w, s.compactions)...)
}

// op returns a random operation that a condition holds for.
func (s *sim) op(which func(*Op) bool) *Op {
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
	wrote := func(o *Op) bool { return o.Outcome == Acked && o.Wrote() }
	reads := func(k ...Kind) func(*Op) bool {
		return func(o *Op) bool {
			return o.Outcome == Acked && slices.Contains(k, o.Kind) &&
				len(o.Found) > 0
		}
	}
	tests := []struct {
		name, want string
		tamper     func(*sim)
	}{
		{"a lost write", "lost", func(s *sim) {
			o := s.op(func(o *Op) bool { return o.Kind == Put && o.Outcome == Acked })
			s.h.at(o.Rev).Events[0].Value = "another"
		}},
		{"a write beyond the end", "lost", func(s *sim) { s.op(wrote).Rev = s.h.Last() + 1 }},
		{"a revision for two", "acknowledged twice", func(s *sim) {
			a := s.op(wrote)
			s.op(func(o *Op) bool { return wrote(o) && o != a }).Rev = a.Rev
		}},
		{"half a transaction", "lost", func(s *sim) {
			o := s.op(func(o *Op) bool { return o.Kind == Pair && o.Outcome == Acked })
			r := s.h.at(o.Rev)
			r.Events = r.Events[:1]
		}},
		{"a write without an operation", "no operation", func(s *sim) {
			o := s.op(func(o *Op) bool { return o.Kind == Put && o.Outcome == Acked })
			s.ops = slices.DeleteFunc(s.ops, func(p Op) bool { return p.Value == o.Value })
		}},
		{"a deletion without an operation", "no operation", func(s *sim) {
			o := s.op(func(o *Op) bool {
				return o.Kind == Del && o.Outcome == Acked &&
					o.Deleted == 1
			})
			rev := o.Rev
			s.ops = slices.DeleteFunc(s.ops,
				func(p Op) bool { return p.Rev == rev || p.Kind == Del && p.Outcome == Unknown })
		}},
		{"a rejected write that was applied", "contradicts", func(s *sim) {
			o := s.op(func(o *Op) bool { return o.Kind == Put && o.Outcome == Acked })
			o.Outcome = Refused
		}},
		{"a stale read", "stale", func(s *sim) {
			o := s.op(func(o *Op) bool {
				return o.Outcome == Acked && o.Kind == Scan &&
					o.Rev > s.h.Base+10
			})
			o.Rev -= 8
			o.Found = s.h.Timeline().states(o.Rev)
		}},
		{"a stale read of one key", "no order explains", func(s *sim) {
			t := s.h.Timeline()
			o := s.op(func(o *Op) bool {
				was, ok := t.state(o.Key, o.Rev-12)
				return o.Outcome == Acked && o.Kind == Get && ok && len(o.Found) == 1 &&
					o.Found[0] != was
			})
			o.Rev -= 12
			o.Found = t.one(o.Key, o.Rev)
		}},
		{"a read of the future", "was asked for by", func(s *sim) {
			o := s.op(func(o *Op) bool {
				return o.Outcome == Acked && o.Kind == Scan &&
					o.Rev < s.h.Last()-10
			})
			o.Rev += 8
			o.Found = s.h.Timeline().states(o.Rev)
		}},
		{"a wrong value", "what was not there",
			func(s *sim) { s.op(reads(Get, Scan, Local, Pinned)).Found[0].Value = "wrong" }},
		{"a wrong version", "what was not there",
			func(s *sim) { s.op(reads(Get, Scan, Cas, Pinned)).Found[0].Version++ }},
		{"a missing key", "what was not there", func(s *sim) {
			o := s.op(reads(Scan, Local))
			o.Found = o.Found[1:]
		}},
		{"a condition that did not hold", "judged wrongly", func(s *sim) {
			s.op(func(o *Op) bool { return o.Outcome == Acked && o.Kind == Cas && o.Done }).Expect++
		}},
		{"a deletion that found nothing", "deleted", func(s *sim) {
			o := s.op(func(o *Op) bool {
				return o.Outcome == Acked && o.Kind == Del &&
					o.Deleted == 0
			})
			o.Deleted = 1
		}},
		{"a version in the history", "follows", func(s *sim) {
			o := s.op(func(o *Op) bool { return o.Outcome == Acked && o.Kind == Put })
			s.h.at(o.Rev).Events[0].Version++
		}},
		{"a member that goes back", "went back", func(s *sim) {
			all := []*Op{}
			for n := range s.ops {
				if o := &s.ops[n]; o.Kind == Local && o.Outcome == Acked && o.Client == 0 {
					all = append(all, o)
				}
			}
			o := all[len(all)-1]
			o.Rev = all[0].Rev - 1
		}},
		{"a member that goes back for another client", "went back", func(s *sim) {
			o := s.op(func(o *Op) bool {
				return o.Kind == Local && o.Outcome == Acked &&
					o.Client == 1 && o.Rev > s.h.Base+30
			})
			o.Rev -= 25
			o.Found = s.h.Timeline().states(o.Rev)
		}},
		{"a revision that the member did not have", "did not have", func(s *sim) {
			o := s.op(func(o *Op) bool {
				return o.Kind == Pinned && o.Outcome == Acked &&
					o.Expect > s.h.Base
			})
			o.Rev = o.Expect - 1
		}},
		{"a key twice in a revision", "changes a key twice", func(s *sim) {
			o := s.op(func(o *Op) bool { return o.Kind == Put && o.Outcome == Acked })
			r := s.h.at(o.Rev)
			again := r.Events[0]
			again.Version++
			r.Events = append(r.Events, again)
		}},
		{"no former value before a compaction", "before", func(s *sim) {
			n := s.message(1)
			for s.w.Messages[n].Before[0] == nil {
				n = s.message(1)
			}
			s.w.Messages[n].Before[0] = nil
			s.compactions = Compactions{{At: s.w.Messages[n].At + 1, Rev: s.h.Last()}}
		}},
		{"a compaction that was requested later", "not requested", func(s *sim) {
			m := Message{At: s.w.Messages[5].At, Rev: 400, Compacted: true}
			s.w.Messages = slices.Insert(s.w.Messages, 5, m)
			s.compactions = Compactions{{At: m.At + 1, Rev: 500}}
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
			s.w.Messages = slices.Insert(s.w.Messages, n,
				Message{At: s.w.Messages[n].At, Rev: s.w.Messages[n].Events[0].Mod})
		}},
		{"a former value", "before", func(s *sim) {
			n := s.message(1)
			s.w.Messages[n].Before[0] = &Item{Key: "k/a", Value: "wrong"}
		}},
		{"a compaction that was not requested", "not requested", func(s *sim) {
			s.w.Messages = slices.Insert(s.w.Messages, 5, Message{Rev: 20, Compacted: true})
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

// TestUncertainty checks what is no violation: a deletion of unknown outcome that explains a
// tombstone, a write of unknown outcome that came late, and a watcher that received a compaction.
func TestUncertainty(t *testing.T) {
	h := &History{Base: 1, Start: map[string]Item{"k/a": {"k/a", "x", 1, 1, 1}}, Revs: []Revision{
		{30, []Event{{Item{Key: "k/a", Mod: 2}, true}}},
		{90, []Event{{Item: Item{"k/a", "late", 3, 3, 1}}}},
	}}
	ops := []Op{
		{Client: 1, Kind: Put, Key: "k/a", Value: "late", Call: 5, Ret: 10, Outcome: Unknown},
		{Client: 2, Kind: Del, Key: "k/a", Call: 6, Ret: 12, Outcome: Unknown},
		{Client: 3, Kind: Get, Key: "k/a", Call: 40, Ret: 50, Outcome: Acked, Rev: 2},
		{Client: 3, Kind: Put, Key: "k/a", Value: "never", Call: 60, Ret: 70, Outcome: Unknown},
	}
	if v := Check(h, ops, time.Minute); len(v) > 0 {
		t.Error(strings.Join(v, "\n"))
	}
	w := Record{Name: "w", Next: 2,
		Messages: []Message{{Rev: 3, Compacted: true},
			{Events: h.Revs[1].Events, Before: []*Item{nil}}}}
	if v := CheckWatch(h, h.Timeline(), &w, Compactions{{Rev: 3}}); len(v) > 0 {
		t.Error(strings.Join(v, "\n"))
	}
	if v := CheckWatch(h, h.Timeline(), &w, Compactions{{Rev: 2}}); len(v) == 0 {
		t.Error("a compaction that was not requested was accepted")
	}
}

// TestWatchOptions: filters, former values that were not asked for, and a watch from a future
// revision.
func TestWatchOptions(t *testing.T) {
	a1, a2 := Item{"k/a", "1", 2, 2, 1}, Item{"k/a", "2", 2, 3, 2}
	h := &History{Base: 1, Start: map[string]Item{}, Revs: []Revision{
		{2, []Event{{Item: a1}}}, {3, []Event{{Item: a2}}},
		{4, []Event{{Item{Key: "k/a", Mod: 4}, true}}},
	}}
	put1, put2, del := h.Revs[0].Events[0], h.Revs[1].Events[0], h.Revs[2].Events[0]
	one := func(e Event,
		before ...*Item) Message {
		return Message{Events: []Event{e}, Before: before}
	}
	for _, test := range []struct {
		name, want string
		w          Record
	}{
		{"all", "", Record{Next: 2,
			Messages: []Message{one(put1, nil), one(put2, &a1), one(del, &a2)}}},
		{"puts", "", Record{Next: 2, Filter: Filter{NoDelete: true},
			Messages: []Message{one(put1, nil), one(put2, &a1), {Rev: 4}}}},
		{"deletions", "", Record{Next: 2, Filter: Filter{NoPut: true},
			Messages: []Message{{Rev: 3}, one(del, &a2)}}},
		{"no former values", "",
			Record{Next: 2, Filter: Filter{NoPrev: true},
				Messages: []Message{one(put1), one(put2), one(del)}}},
		{"from the future", "",
			Record{Next: 3, Messages: []Message{one(put2, &a1), one(del, &a2)}}},
		{"beyond the end", "", Record{Next: 9}},
		{"a deletion that was filtered", "not reliable",
			Record{Next: 2, Filter: Filter{NoDelete: true},
				Messages: []Message{one(put1, nil), one(put2, &a1), one(del, &a2)}}},
		{"a put that was filtered", "not reliable",
			Record{Next: 2, Filter: Filter{NoPut: true}, Messages: []Message{one(put1, nil)}}},
		{"a former value that was not asked for", "did not ask",
			Record{Next: 3, Filter: Filter{NoPrev: true},
				Messages: []Message{one(put2, &a1), one(del)}}},
		{"no former value", "before",
			Record{Next: 3, Messages: []Message{one(put2), one(del, &a2)}}},
		{"a former value of another revision", "before",
			Record{Next: 4, Messages: []Message{one(del, &a1)}}},
		{"the past of a watch from the future", "not ordered",
			Record{Next: 3, Messages: []Message{one(put1, nil), one(put2, &a1), one(del, &a2)}}},
	} {
		got := strings.Join(CheckWatch(h, h.Timeline(), &test.w, nil), "\n")
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: want %q, got %q", test.name, test.want, got)
		}
	}
}

// TestNotice: what an answer named existed then, and so did all before it.
func TestNotice(t *testing.T) {
	h := &History{Base: 1, Revs: []Revision{{Seen: 10}, {Seen: 50}, {Seen: 40}, {Seen: 60}}}
	h.Notice([]Moment{{At: 45, Rev: 5}, {At: 30, Rev: 3}, {At: 5, Rev: 1}, {At: 70, Rev: 5},
		{At: 39, Rev: 9}})
	for n, want := range []time.Duration{10, 30, 39, 39} {
		if got := h.Revs[n].Seen; got != want {
			t.Errorf("revision %d was there at %d, want %d", n+2, got, want)
		}
	}
}

// TestListedTwice: a write of a listed key happens once.
func TestListedTwice(t *testing.T) {
	h := &History{Base: 1,
		Revs: []Revision{{1, []Event{{Item: Item{"p/a", "0-1", 2, 2, 1}}}},
			{2, []Event{{Item: Item{"p/a", "0-1", 2, 3, 2}}}}}}
	if v := strings.Join(Check(h, nil, time.Minute), "\n"); !strings.Contains(v,
		"are the same write") {
		t.Error(v)
	}
}
