package watch

import (
	"cmp"
	"slices"
)

// Revoke cancels the watchers for whose range refuse returns a reason, in the order of their ids
// and after the responses already queued for them. Any goroutine may call it. It does not wait for
// the client, and may miss watchers that are created during the call.
func (s *Stream) Revoke(refuse func(key, end []byte) (reason string)) {
	h := s.hub
	h.mu.Lock()
	all := make([]*watcher, 0, s.active)
	for w := range s.watchers.all() {
		if !w.dead {
			all = append(all, w)
		}
	}
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b *watcher) int { return cmp.Compare(a.id, b.id) })
	for _, w := range all {
		// The range of a watcher does not change.
		reason := refuse(w.asked())
		if reason == "" {
			continue
		}
		h.mu.Lock()
		if !w.dead && !s.closed {
			s.mu.Lock()
			h.endWatcher(w)
			s.putAnswer(Response{WatchID: w.id, Revision: h.revision(), Canceled: true,
				Reason: reason})
			s.mu.Unlock()
			h.counts.revoked.Add(1)
		}
		h.mu.Unlock()
	}
}

// asked returns the range of a watcher as it was requested.
func (w *watcher) asked() (key, end []byte) {
	key = []byte(w.key)
	switch {
	case w.flags&ranged == 0:
	case w.end == "":
		end = []byte{0}
	default:
		end = []byte(w.end)
	}
	return key, end
}
