package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Span is a time without disturbances: no fault is active, no member starts, stops or changes, and
// the last of that was long enough ago for the members to have a leader and for clients to have
// connections.
type Span struct {
	From, To time.Duration
	// Members are the slots of the members, which all run and vote. If it is Partial, one is left
	// out, because its disk hangs: clients that choose among all may be at that one.
	Members map[int]bool
	Partial bool
	// Change bounds the time from the moment at which the disk begins to hold up the member, which
	// is any one, until the others go on.
	Change time.Duration
}

// onset is when the member that is left out of a span began to hold up the others, by the first
// operation that took long.
type onset map[*Span]time.Duration

// excuses reports whether an operation in a span took long, or failed, because of that.
func (f onset) excuses(s *Span, o *Op, p *Prompt) bool {
	if !s.Partial {
		return false
	}
	if _, ok := f[s]; !ok {
		f[s] = o.Call
	}
	return o.Ret <= f[s]+s.Change+p.Answer
}

// judges reports whether what clients of a member observe is judged, -1 for those that choose among
// all.
func (s *Span) judges(member int) bool {
	if member < 0 {
		return !s.Partial
	}
	return s.Members[member]
}

// Prompt is what members and clients promise while nothing disturbs them.
type Prompt struct {
	// Spans are in order of time.
	Spans []Span
	// Answer bounds the time of an operation, Delay that of what is known at one member and not
	// received from another one.
	Answer, Delay time.Duration
	// Reconnect bounds the time for which a fault that is over may leave a client without a
	// connection.
	Reconnect time.Duration
	// Silence bounds the time without a message to a watcher with progress notifications.
	Silence time.Duration
	// Full is set if writes may be refused for want of space.
	Full bool
}

// span returns the span that has a whole time, or nil.
func (p *Prompt) span(from, to time.Duration) *Span {
	for n := range p.Spans {
		if s := &p.Spans[n]; s.From <= from && to <= s.To {
			return s
		}
	}
	return nil
}

// CheckAnswers checks that operations succeed soon while nothing disturbs the cluster, and that
// members and mirrors do not lag: what they show has all that was known some time before.
// Operations are judged from the first answer of the member to the client on: a connection that has
// broken during a fault is noticed when it is used.
func CheckAnswers(ops []Op, p *Prompt) Violations {
	var v Violations
	known := newFloor(ops)
	type user struct{ client, member int }
	answered := map[user]time.Duration{} // the last time
	held := onset{}
	for n := range ops {
		o := &ops[n]
		u := user{o.Client, o.Member}
		last, before := answered[u]
		if o.Outcome == Acked {
			answered[u] = o.Ret
		}
		s := p.span(o.Call, o.Call)
		if s == nil || !s.judges(o.Member) {
			continue
		}
		took, connected := o.Ret-o.Call, before && last >= s.From
		switch {
		case !connected:
		case o.Outcome == Acked && took > p.Answer && o.Call+p.Answer <= s.To &&
			!held.excuses(s, o, p):
			v.Add("slow without a fault, it took %v: %v", took, o)
		case o.Outcome != Acked && min(o.Ret, o.Call+p.Answer) <= s.To && !p.excuses(o, took) &&
			!held.excuses(s, o, p):
			v.Add("failed without a fault: %v", o)
		}
		if o.Outcome != Acked || !o.local() || o.Page != nil && o.Page.Rev != 0 {
			continue
		}
		if floor := known.before(o.Call - p.Delay); o.Rev < floor {
			v.Add("it lags without a fault, revision %d was known %v before: %v", floor, p.Delay, o)
		}
	}
	return v
}

// CheckLeaseAnswers checks the same of calls about leases, by clients that use one member only.
func CheckLeaseAnswers(leases []LeaseOp, p *Prompt) Violations {
	var ops []Op
	for n := range leases {
		if o := &leases[n]; o.At > 0 {
			ops = append(ops, Op{Client: o.Client, Member: o.At - 1, Kind: o.Kind,
				Key: fmt.Sprintf("%x", o.Lease), Call: o.Call, Ret: o.Ret,
				Outcome: o.Outcome, Err: o.Err})
		}
	}
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	return CheckAnswers(ops, p)
}

// excuses reports whether the error of an operation needs no fault: the client gave it up early,
// asked for too much, or for a revision that a member does not have; see CheckRevisions for these.
func (p *Prompt) excuses(o *Op, took time.Duration) bool {
	for _, text := range []string{"context canceled", "context deadline exceeded"} {
		if took < p.Answer && strings.Contains(o.Err, text) {
			return true
		}
	}
	return o.tooLarge() || strings.Contains(o.Err, compactedText) ||
		strings.Contains(o.Err, futureText) || p.Full && strings.Contains(o.Err, noSpaceText)
}

// CheckDelivery checks that a watcher with progress notifications, at one member or at any if that
// is -1, receives events soon while nothing disturbs the cluster, and is never silent for long
// while there are revisions after those that it knows.
func CheckDelivery(h *History, r *Record, member int, p *Prompt) Violations {
	var v Violations
	if r.Skipped() {
		return v
	}
	judged := func(s *Span) bool { return s != nil && s.judges(member) }
	connected := func(s *Span) time.Duration {
		i := slices.IndexFunc(r.Messages, func(m Message) bool { return m.At >= s.From })
		if i < 0 {
			return s.From + p.Reconnect
		}
		return min(r.Messages[i].At, s.From+p.Reconnect)
	}
	next := 0 // of the messages, whose revisions are in order
	for n := range h.Revs {
		seen, rev := h.Revs[n].Seen, h.Base+1+int64(n)
		s := p.span(seen, seen+p.Delay)
		if !slices.ContainsFunc(h.Revs[n].Events, r.wants) || !judged(s) || seen < connected(s) {
			continue
		}
		for next < len(r.Messages) && r.Messages[next].Last() < rev {
			next++
		}
		if next == len(r.Messages) || r.Messages[next].At > seen+p.Delay {
			v.Add("%s: late without a fault: revision %d, which was there at %v, was not received in %v", r.Name, rev, seen, p.Delay)
			break
		}
	}
	for n := range p.Spans {
		s := &p.Spans[n]
		if !judged(s) {
			continue
		}
		before, has := connected(s), r.Next-1
		for i := 0; before < s.To; i++ {
			at := s.To
			if i < len(r.Messages) {
				at = min(at, r.Messages[i].At)
			}
			// A watch that begins after the newest revision has no notification before that
			// revision is there.
			if news := h.at(has + 1); news != nil && at-max(before, news.Seen) > p.Silence {
				v.Add("%s: silent without a fault from %v to %v, after revision %d", r.Name,
					max(before, news.Seen), at, has)
				return v
			}
			if before = max(before, at); i < len(r.Messages) {
				has = max(has, r.Messages[i].Last())
			}
		}
	}
	return v
}

// Last returns the revision up to which a message brings a watcher.
func (m *Message) Last() int64 {
	if len(m.Events) > 0 {
		return m.Events[len(m.Events)-1].Mod
	}
	return m.Rev
}
