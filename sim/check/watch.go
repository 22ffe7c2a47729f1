package check

import (
	"slices"
	"sort"
	"sync"
	"time"
)

// Message is one message to a watcher.
type Message struct {
	At time.Duration
	// Rev is the revision of a progress notification, or from which a watch can continue after a
	// compaction; in both cases there are no events.
	Rev       int64
	Compacted bool
	Events    []Event
	// Before are the former values, by event, if the watcher asked for them.
	Before []*Item
}

// Record holds the messages to one watcher since its last check.
type Record struct {
	Name string
	// From and To bound the keys, all if To is empty.
	From, To string
	// Filter is what the watcher left out.
	Filter
	// Next is the revision from which the watcher expects events.
	Next int64
	// Partial is set if the watcher ended before the history did.
	Partial  bool
	Messages []Message
}

// Filter has the options of a watcher that change what it receives.
type Filter struct {
	NoPut, NoDelete bool
	// NoPrev is set if the watcher did not ask for former values.
	NoPrev bool
}

// wants reports whether the watcher must receive an event.
func (r *Record) wants(e Event) bool {
	return e.Mod >= r.Next && (r.To == "" || r.From <= e.Key && e.Key < r.To) &&
		(e.Deleted && !r.NoDelete || !e.Deleted && !r.NoPut)
}

// CheckWatch compares the messages to a watcher with the complete history: the events belong to
// the history and of the watched keys that pass its filter, in its order, once each and without a
// gap, those of a revision in one message, also across connections; none is below the revision from
// which it watches; and after a progress notification no event up to its revision follows. What a
// watcher misses by a compaction was requested to be compacted before.
func CheckWatch(h *History, t *timeline, r *Record, compactions Compactions) Violations {
	var v Violations
	var want []Event
	for n := range h.Revs {
		for _, e := range h.Revs[n].Events {
			if r.wants(e) {
				want = append(want, e)
			}
		}
	}
	if r.Next <= h.Base {
		v.Add("%s: it expects revision %d, the history begins after %d", r.Name, r.Next, h.Base)
		return v
	}
	next, progress := 0, r.Next-1
	for _, m := range r.Messages {
		switch {
		case m.Compacted:
			if m.Rev > compactions.highest(m.At) {
				v.Add("%s: it received at %v that %d is compacted, which was not requested",
					r.Name, m.At, m.Rev)
			}
			if m.Rev <= progress {
				v.Add("%s: it received at %v that its revision is compacted, but it was at %d and only %d is", r.Name, m.At, progress, m.Rev)
			}
			next += sort.Search(len(want)-next,
				func(i int) bool { return want[next+i].Mod >= m.Rev })
			progress = max(progress, m.Rev-1)
			continue
		case len(m.Events) == 0:
			if next < len(want) && want[next].Mod <= m.Rev {
				v.Add("%s: not bookmarkable: progress %d at %v, but %v was not sent", r.Name, m.Rev,
					m.At, want[next])
			}
			if m.Rev > h.Last() {
				v.Add("%s: progress %d at %v, the history ends at %d", r.Name, m.Rev,
					m.At, h.Last())
			}
			progress = max(progress, m.Rev)
			continue
		}
		for n, e := range m.Events {
			if e.Mod <= progress {
				v.Add("%s: not ordered or not unique: %v at %v, after %d", r.Name, e,
					m.At, progress)
				return v
			}
			if next == len(want) || want[next] != e {
				var due any = "nothing"
				if next < len(want) {
					due = want[next]
				}
				v.Add("%s: not reliable: %v at %v, where %v was due", r.Name, e, m.At, due)
				return v
			}
			next++
			var before *Item
			if n < len(m.Before) {
				before = m.Before[n]
			}
			checkBefore(&v, t, r, e, before, compactions.highest(m.At))
		}
		last := m.Events[len(m.Events)-1].Mod
		if next < len(want) && want[next].Mod == last {
			v.Add("%s: not atomic: revision %d was sent in parts at %v", r.Name, last, m.At)
		}
		progress = max(progress, last)
	}
	if next < len(want) && !r.Partial {
		v.Add("%s: not reliable: %d events were never sent, from %v on", r.Name,
			len(want)-next, want[next])
	}
	return v
}

// checkBefore checks the former value of an event; it may be missing if it was compacted.
func checkBefore(v *Violations, t *timeline, r *Record, e Event, got *Item, compacted int64) {
	want, ok := t.state(e.Key, e.Mod-1)
	switch {
	case r.NoPrev:
		if got != nil {
			v.Add("%s: with %v it received the former value %v, which it did not ask for",
				r.Name, e, *got)
		}
	case got == nil && ok && e.Mod-1 >= compacted, got != nil && (!ok || *got != want):
		v.Add("%s: before %v there was %v, not %v", r.Name, e, want, got)
	}
}

// Skipped reports whether the watcher received that its revision was compacted, so that it need not
// have all events.
func (r *Record) Skipped() bool {
	return slices.ContainsFunc(r.Messages, func(m Message) bool { return m.Compacted })
}

// SharedRecord is a record that a watcher adds to.
type SharedRecord struct {
	mu     sync.Mutex
	R      Record
	newest int64 // revision of the newest event or notification
}

func (s *SharedRecord) Add(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.R.Messages = append(s.R.Messages, m)
	rev := m.Rev
	switch {
	case m.Compacted:
		rev--
	case len(m.Events) > 0:
		rev = m.Events[len(m.Events)-1].Mod
	}
	s.newest = max(s.newest, rev)
}

// Resume returns the revision from which to watch.
func (s *SharedRecord) Resume() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.newest+1, s.R.Next)
}

// Has reports whether the watcher received a revision or a later one.
func (s *SharedRecord) Has(rev int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest >= rev
}

// Take returns the messages up to a revision, and keeps the later ones.
func (s *SharedRecord) Take(last int64) Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := s.R, s.R
	before.Messages, after.Messages, after.Next = nil, nil, last+1
	for _, m := range s.R.Messages {
		n := sort.Search(len(m.Events), func(i int) bool { return m.Events[i].Mod > last })
		switch {
		case len(m.Events) == 0 && (m.Rev <= last || m.Compacted && m.Rev == last+1),
			len(m.Events) > 0 && n == len(m.Events):
			before.Messages = append(before.Messages, m)
		case n == 0:
			after.Messages = append(after.Messages, m)
		default:
			a, b := m, m
			a.Events, b.Events = m.Events[:n], m.Events[n:]
			a.Before, b.Before = m.Before[:n], m.Before[n:]
			before.Messages, after.Messages = append(before.Messages, a), append(after.Messages, b)
		}
	}
	s.R = after
	return before
}
