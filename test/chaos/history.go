package chaos

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// event is a change of a key. A tombstone has no value, version or creation.
type event struct {
	item
	Deleted bool
}

func (e event) String() string {
	if e.Deleted {
		return fmt.Sprintf("[%s deleted at %d]", e.Key, e.Mod)
	}
	return e.item.String()
}

// revision holds all changes of one revision.
type revision struct {
	// Seen is when the first watcher received it.
	Seen   time.Duration
	Events []event
}

// history is every revision from one on, as the watchers of all keys saw them: the first watcher that receives
// a revision adds it, and the others must receive the same.
type history struct {
	// Base is the revision before the first one, and Start the state at it.
	Base  int64
	Start map[string]item
	Revs  []revision
}

// last is the newest revision.
func (h *history) last() int64 { return h.Base + int64(len(h.Revs)) }

// at returns the changes of a revision, if it is part of the history.
func (h *history) at(rev int64) *revision {
	if rev <= h.Base || rev > h.last() {
		return nil
	}
	return &h.Revs[rev-h.Base-1]
}

// add adds the events of a revision from a watcher of all keys.
func (h *history) add(rev int64, seen time.Duration, events []event) error {
	switch {
	case rev == h.last()+1:
		h.Revs = append(h.Revs, revision{seen, slices.Clone(events)})
	case rev > h.last():
		return fmt.Errorf("revision %d follows %d", rev, h.last())
	case rev <= h.Base:
		return nil
	default:
		if known := h.at(rev).Events; !slices.Equal(known, events) {
			return fmt.Errorf("two watchers received different events of revision %d: %v and %v", rev, known, events)
		}
	}
	return nil
}

// timeline returns the state at any revision of a history.
type timeline struct {
	h    *history
	keys []string
	byID map[string][]event
}

func (h *history) timeline() *timeline {
	t := &timeline{h: h, byID: map[string][]event{}}
	for k, i := range h.Start {
		t.byID[k] = []event{{item: i}}
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
func (t *timeline) state(key string, rev int64) (item, bool) {
	all := t.byID[key]
	n, found := slices.BinarySearchFunc(all, rev, func(e event, rev int64) int { return int(e.Mod - rev) })
	if !found {
		n--
	}
	if n < 0 || all[n].Deleted {
		return item{}, false
	}
	return all[n].item, true
}

// states returns all keys at a revision, in order.
func (t *timeline) states(rev int64) (out []item) {
	for _, k := range t.keys {
		if i, ok := t.state(k, rev); ok {
			out = append(out, i)
		}
	}
	return out
}

// split splits the history after one of its revisions. Earlier messages belong to the first part.
func (h *history) split(last int64) (before, after *history) {
	n := last - h.Base
	before = &history{h.Base, h.Start, h.Revs[:n:n]}
	after = &history{last, map[string]item{}, slices.Clone(h.Revs[n:])}
	for _, i := range before.timeline().states(last) {
		after.Start[i.Key] = i
	}
	return before, after
}

// sharedHistory is a history that watchers add to.
type sharedHistory struct {
	mu sync.Mutex
	h  *history
}

func (s *sharedHistory) add(rev int64, seen time.Duration, events []event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.h.add(rev, seen, events)
}

func (s *sharedHistory) last() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.h.last()
}

// newest returns the revision of the newest event up to a revision that a watcher should have received.
func (s *sharedHistory) newest(w *sharedRecord, last int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rev := last; rev > s.h.Base; rev-- {
		if slices.ContainsFunc(s.h.at(rev).Events, func(e event) bool { return w.r.in(e.Key) }) {
			return rev
		}
	}
	return 0
}

// take returns the history up to a revision that it has, and continues after it.
func (s *sharedHistory) take(last int64) *history {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := s.h.split(last)
	s.h = after
	return before
}
