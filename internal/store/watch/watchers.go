package watch

import "iter"

// watcherSet holds the watchers of a stream by id. Very many streams have only a watcher or two and
// need no map.
type watcherSet struct {
	few  []*watcher // all, while byID is nil
	byID map[int64]*watcher
}

// fewWatchers is the largest number of watchers that a stream keeps without a map.
const fewWatchers = 8

func (s *watcherSet) len() int { return len(s.few) + len(s.byID) }

// get returns the watcher with an id, nil if there is none.
func (s *watcherSet) get(id int64) *watcher {
	for _, w := range s.few {
		if w.id == id {
			return w
		}
	}
	return s.byID[id]
}

// add adds a watcher whose id is not in the set.
func (s *watcherSet) add(w *watcher) {
	if s.byID == nil && len(s.few) < fewWatchers {
		s.few = append(s.few, w)
		return
	}
	if s.byID == nil {
		s.byID = make(map[int64]*watcher, 2*fewWatchers)
		for _, w := range s.few {
			s.byID[w.id] = w
		}
		s.few = nil
	}
	s.byID[w.id] = w
}

// remove removes the watcher with an id.
func (s *watcherSet) remove(id int64) {
	for i, w := range s.few {
		if w.id == id {
			last := len(s.few) - 1
			s.few[i], s.few[last] = s.few[last], nil
			s.few = s.few[:last]
			return
		}
	}
	if delete(s.byID, id); len(s.byID) == 0 {
		s.byID = nil // a map does not shrink
	}
}

// all yields the watchers. The set must not change during the iteration.
func (s *watcherSet) all() iter.Seq[*watcher] {
	return func(yield func(*watcher) bool) {
		for _, w := range s.few {
			if !yield(w) {
				return
			}
		}
		for _, w := range s.byID {
			if !yield(w) {
				return
			}
		}
	}
}
