package watch

// # Responses that are larger than the budget
//
// The limit of a stream (Hub.limit) falls as all streams together hold more, and one revision may be larger than any
// limit. A response that is larger than the limit fits only into an empty queue. If another watcher of the stream has
// events all the time, the queue is never empty, and the watcher with the large response would starve. The rule:
//
//  1. Mark. A watcher is oversized when it is parked because its next response is larger than the whole limit.
//  2. Block. While a stream has an oversized watcher, its other watchers get no events and no progress notifications.
//     They are parked too. Only the sharing of a run is allowed: it costs eight bytes and makes the queue no longer.
//     Answers are queued as always: the budget does not bound them.
//  3. Unmark. The mark is removed when events of the watcher are queued, or when the watcher ends.
//
// The queue therefore only drains. The sender's next call of Next finds it empty and gives the parked watchers to the
// workers. The oversized watcher fits then, and the others after it. Several oversized watchers are served one after
// another.
//
// Nothing stays blocked (W7): when the mark is removed, a response is queued, that of the watcher or the answer that it
// has ended, and the call of Next after that response looks at the parked watchers. A limit that rises again before does
// no harm: the watcher keeps its mark and is served first once.

// admits reports whether events may be queued for w: no other watcher of the stream is oversized. mu is held.
func (s *Stream) admits(w *watcher) bool { return w.oversized || s.mu.oversized == 0 }

// markOversized marks w. mu is held.
func (s *Stream) markOversized(w *watcher) {
	if !w.oversized {
		w.oversized = true
		s.mu.oversized++
	}
}

// unmarkOversized removes the mark of w, if it has one. mu is held.
func (s *Stream) unmarkOversized(w *watcher) {
	if w.oversized {
		w.oversized = false
		s.mu.oversized--
	}
}
