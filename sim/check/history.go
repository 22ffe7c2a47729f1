package check

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Event is a change of a key. A tombstone has no value, version or creation.
type Event struct {
	Item
	Deleted bool
}

func (e Event) String() string {
	if e.Deleted {
		return fmt.Sprintf("[%s deleted at %d]", e.Key, e.Mod)
	}
	return e.Item.String()
}

// Revision holds all changes of one revision.
type Revision struct {
	// Seen is when the first watcher received it.
	Seen   time.Duration
	Events []Event
}

// History is every revision from one on, as the watchers of all keys saw them: the first watcher
// that receives a revision adds it, and the others must receive the same.
type History struct {
	// Base is the revision before the first one, and Start the state at it.
	Base  int64
	Start map[string]Item
	Revs  []Revision
}

// Last is the newest revision.
func (h *History) Last() int64 { return h.Base + int64(len(h.Revs)) }

// at returns the changes of a revision, if it is part of the history.
func (h *History) at(rev int64) *Revision {
	if rev <= h.Base || rev > h.Last() {
		return nil
	}
	return &h.Revs[rev-h.Base-1]
}

// add adds the events of a revision from a watcher of all keys.
func (h *History) add(rev int64, seen time.Duration, events []Event) error {
	switch {
	case rev == h.Last()+1:
		h.Revs = append(h.Revs, Revision{seen, slices.Clone(events)})
	case rev > h.Last():
		return fmt.Errorf("revision %d follows %d", rev, h.Last())
	case rev <= h.Base:
		return nil
	default:
		if known := h.at(rev).Events; !slices.Equal(known, events) {
			return fmt.Errorf("two watchers received different events of revision %d: %v and %v",
				rev, known, events)
		}
	}
	return nil
}

// Moment is that a revision was known to exist at a time: an answer or a notification named it.
type Moment struct {
	At  time.Duration
	Rev int64
}

// Notice makes the times at which revisions were seen first as early as some moments show: a
// revision exists before a later one. A watcher may see it much later.
func (h *History) Notice(moments []Moment) {
	slices.SortFunc(moments, func(a, b Moment) int { return cmp.Compare(b.Rev, a.Rev) })
	first := time.Duration(math.MaxInt64)
	for n := len(h.Revs) - 1; n >= 0; n-- {
		for ; len(moments) > 0 && moments[0].Rev > h.Base+int64(n); moments = moments[1:] {
			first = min(first, moments[0].At)
		}
		first = min(first, h.Revs[n].Seen)
		h.Revs[n].Seen = first
	}
}

// timeline returns the state at any revision of a history.
type timeline struct {
	h    *History
	keys []string
	byID map[string][]Event
}

func (h *History) Timeline() *timeline {
	t := &timeline{h: h, byID: map[string][]Event{}}
	for k, i := range h.Start {
		t.byID[k] = []Event{{Item: i}}
	}
	for _, r := range h.Revs {
		for _, e := range r.Events {
			t.byID[e.Key] = append(t.byID[e.Key], e)
		}
	}
	t.keys = slices.Sorted(maps.Keys(t.byID))
	return t
}

// state returns a key at a revision of the history or its base.
func (t *timeline) state(key string, rev int64) (Item, bool) {
	all := t.byID[key]
	n, found := slices.BinarySearchFunc(all, rev,
		func(e Event, rev int64) int { return int(e.Mod - rev) })
	if !found {
		n--
	}
	if n < 0 || all[n].Deleted {
		return Item{}, false
	}
	return all[n].Item, true
}

// states returns all keys at a revision, in order.
func (t *timeline) states(rev int64) (out []Item) {
	for _, k := range t.keys {
		if i, ok := t.state(k, rev); ok {
			out = append(out, i)
		}
	}
	return out
}

// split splits the history after one of its revisions. Earlier messages belong to the first part.
func (h *History) split(last int64) (before, after *History) {
	n := last - h.Base
	before = &History{h.Base, h.Start, h.Revs[:n:n]}
	after = &History{last, map[string]Item{}, slices.Clone(h.Revs[n:])}
	for _, i := range before.Timeline().states(last) {
		after.Start[i.Key] = i
	}
	return before, after
}

// SharedHistory is a history that watchers add to.
type SharedHistory struct {
	mu sync.Mutex
	H  *History
}

func (s *SharedHistory) Add(rev int64, seen time.Duration, events []Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.H.add(rev, seen, events)
}

func (s *SharedHistory) Last() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.H.Last()
}

// Newest returns the revision of the newest event up to a revision that a watcher should have
// received.
func (s *SharedHistory) Newest(w *SharedRecord, last int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for rev := last; rev > s.H.Base; rev-- {
		if slices.ContainsFunc(s.H.at(rev).Events, func(e Event) bool { return w.R.wants(e) }) {
			return rev
		}
	}
	return 0
}

// Take returns the history up to a revision that it has, and continues after it.
func (s *SharedHistory) Take(last int64) *History {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := s.H.split(last)
	s.H = after
	return before
}
