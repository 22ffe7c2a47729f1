package watch

// # Watchers without room
//
// A watcher whose events do not fit into the queue of its stream is parked. If the others of the
// stream could fill the queue as before, a watcher that always has events would keep the queue
// full, and the parked watcher would starve. The rule:
//
//  1. Park. A parked watcher waits until the queue falls to a level at which its response fits:
//     Stream.mu.resumeAt, the lowest level of all parked watchers. While watchers are parked, no
//     events raise the queue above that level. So the queue falls.
//  2. Round. When the queue has fallen to the level, the parked watchers are the members of a
//     round, and go to the workers. A member may fill the queue up to the limit of the stream. The
//     other watchers may fill it up to the level of the round, Stream.mu.level. A watcher without
//     room is parked and waits for the end of the round.
//  3. Leave. A member leaves the round when its events are queued, when it is live again, or when
//     it ends.
//  4. Retry. A member whose response does not fit, because other members were first or because the
//     limit has fallen, waits for an empty queue. From then on the level is 0: only members fill
//     the queue.
//
// An empty queue has room for any response. So whenever the queue becomes empty, at least one of
// the members that wait for an empty queue leaves the round, and a round of n members fills the
// queue at most n+1 times. A parked watcher is in the next round: it is served after at most two
// rounds (W12). One response that is larger than the limit is a special case only in that its level
// is 0.
//
// A watcher may always share the last run of the queue: this costs eight bytes and does not make
// the queue longer. The hub always queues answers: the budget does not bound them. It queues no
// progress notifications while watchers have no room.
//
// No stream gets stuck (W7). Parked watchers outside a round wait for the queue to fall. A round
// waits for its members: members that the workers have leave it without the sender's help or are
// parked, and parked members wait for an empty queue. When the last member leaves, its response or
// answer is queued, and the sender's next call checks the parked watchers. When a member becomes
// live without a response, leaveLive checks them.

// hasRoom reports whether n bytes of events for w may be queued. mu is held.
func (s *Stream) hasRoom(w *watcher, n int64) bool {
	switch {
	case w.member:
		return s.fits(n)
	case s.mu.members > 0:
		return s.mu.queued+n <= min(s.mu.level, s.hub.limit())
	case s.mu.resumeAt >= 0:
		return s.mu.queued+n <= min(s.mu.resumeAt, s.hub.limit())
	}
	return s.fits(n)
}

// crammed reports whether watchers of the stream had no room and have not been served since. mu is
// held.
func (s *Stream) crammed() bool { return s.mu.members > 0 || s.mu.resumeAt >= 0 }

// leaveRound ends the membership of w, if it has one. mu is held.
func (s *Stream) leaveRound(w *watcher) {
	if w.member {
		w.member = false
		s.mu.members--
	}
}

// resumes reports whether parked watchers may continue. mu is held.
func (s *Stream) resumes() bool {
	if s.mu.members > 0 {
		return s.mu.retry && s.mu.queued == 0
	}
	return s.mu.resumeAt >= 0 && s.mu.queued <= s.mu.resumeAt
}

// park parks a watcher until its stream has room for need bytes. mu is held.
func (h *Hub) park(w *watcher, need int64) {
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.member {
		s.retrying.add(w, inRetrying)
		s.mu.retry, s.mu.level = true, 0
	} else {
		limit := max(h.limit(), 0)
		at := max(min(limit/2, limit-need), 0)
		s.parked.add(w, inParked)
		if s.mu.resumeAt < 0 || at < s.mu.resumeAt {
			s.mu.resumeAt = at
		}
	}
	h.resume(s) // the sender may have been faster
}

// resume hands the parked watchers of a stream to the workers if they may continue. Both locks are
// held.
func (h *Hub) resume(s *Stream) {
	switch {
	case !s.resumes():
		return
	case s.mu.members > 0:
		s.mu.retry = false
		h.unpark(&s.retrying)
		return
	}
	for _, w := range s.parked {
		w.member = true
	}
	s.mu.members, s.mu.level, s.mu.resumeAt = len(s.parked), s.mu.resumeAt, -1
	h.unpark(&s.parked)
}

// unpark moves all watchers of a list to the workers. Hub.mu is held.
func (h *Hub) unpark(from *list) {
	for len(*from) > 0 {
		w := (*from)[len(*from)-1]
		from.remove(w)
		h.addPending(w)
	}
	from.trim()
}

// leaveLive ends the membership of a watcher that has become live. Hub.mu is held.
func (h *Hub) leaveLive(w *watcher) {
	s := w.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.member {
		s.leaveRound(w)
		h.resume(s)
	}
}

// removeParked removes a watcher that ends from the list of watchers that wait for room. Both locks
// are held.
func (s *Stream) removeParked(w *watcher) {
	if w.place == inRetrying {
		s.retrying.remove(w)
		s.retrying.trim()
		s.mu.retry = len(s.retrying) > 0
		return
	}
	s.parked.remove(w)
	s.parked.trim()
	if len(s.parked) == 0 {
		s.mu.resumeAt = -1
	}
}
