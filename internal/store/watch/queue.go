package watch

import (
	"context"
	"slices"
	"unsafe"
)

// run holds one or more consecutive responses that differ only in the watch id.
type run struct {
	id     int64
	also   []int64 // the further ids. Runs share the ids of a cohort, so the capacity is the length
	rev    int64
	events [][]byte
	bytes  int64 // of one response on the wire
	charge int64 // bytes that the run counts against the budget, without its ids
	more   bool  // a fragment, and not the last
	answer *Response
}

// len returns the number of responses.
func (r *run) len() int { return 1 + len(r.also) }

const (
	runSize   = int64(unsafe.Sizeof(run{}))
	idSize    = int64(8)
	sliceSize = int64(unsafe.Sizeof([]byte(nil)))
	// answerSize is the charge for a created or canceled response.
	answerSize = runSize + int64(unsafe.Sizeof(Response{}))
)

// limit returns how many bytes a stream may hold now.
func (h *Hub) limit() int64 {
	return min(h.opt.StreamBytes, (h.opt.MemberBytes-h.queued.Load())/16)
}

// charge adds n to the bytes that the stream holds. mu is held.
func (s *Stream) charge(n int64) {
	s.mu.queued += n
	s.hub.queued.Add(n)
}

// queuedEvents returns the number of queued events, counted once for each watcher.
func (s *Stream) queuedEvents() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := s.mu.runHead; i < len(s.mu.runs); i++ {
		n += int64(s.mu.runs[i].len()) * int64(len(s.mu.runs[i].events))
	}
	return n
}

// fits reports whether there is room for n more bytes; an empty stream has room for anything (W8).
// mu is held.
func (s *Stream) fits(n int64) bool {
	return s.mu.queued == 0 || s.mu.queued+n <= s.hub.limit()
}

// put appends a run. mu is held.
func (s *Stream) put(r run) {
	s.mu.runs = append(s.mu.runs, r)
	s.charge(r.charge + idSize*int64(r.len()))
}

// putEvents appends the chunk for the watcher w, in fragments if necessary, and for the watchers
// with the ids also, which must be of its cohort. It reports whether there was room; need is the
// size that must fit. mu is held.
func (s *Stream) putEvents(w *watcher, also []int64, c *chunk) (need int64, ok bool) {
	if n := len(s.mu.runs); n > s.mu.runHead {
		// Watchers that get the same bytes one after another share a run. That costs only an id, so
		// there is always room.
		t := &s.mu.runs[n-1]
		if t.rev == c.rev && len(t.events) == len(c.events) &&
			&t.events[0] == &c.events[0] && !t.more &&
			(w.flags&fragment == 0 || !s.splits(c)) {
			t.also = append(append(t.also, w.id), also...)
			s.charge(idSize * int64(1+len(also)))
			s.leaveRound(w)
			return 0, true
		}
	}
	need = runSize + idSize + c.bytes + sliceSize*int64(len(c.events))
	if !s.hasRoom(w, need) {
		return need, false
	}
	s.leaveRound(w)
	r := run{id: w.id, also: also, rev: c.rev, events: c.events, bytes: c.bytes + headerSize,
		charge: need - idSize}
	if w.flags&fragment == 0 || !s.splits(c) {
		s.put(r)
		return need, true
	}
	for events := c.events; len(events) > 0; {
		n, bytes := 0, int64(headerSize)
		for n < len(events) && (n == 0 || bytes+wireSize(events[n]) < s.hub.opt.FragmentBytes) {
			bytes += wireSize(events[n])
			n++
		}
		// a slice of events would keep all alive
		r.events, r.bytes, r.more = slices.Clone(events[:n]), bytes, n < len(events)
		r.charge = runSize + bytes + sliceSize*int64(n)
		s.put(r)
		events = events[n:]
	}
	return need, true
}

// splits reports whether the chunk is too large for one response to a watcher that requested
// fragments.
func (s *Stream) splits(c *chunk) bool {
	return len(c.events) > 1 && c.bytes+headerSize >= s.hub.opt.FragmentBytes
}

// putProgress appends a progress notification, or drops it if there is no room. mu is held.
func (s *Stream) putProgress(id, rev int64) {
	r := run{id: id, rev: rev, bytes: headerSize, charge: runSize}
	if !s.crammed() && s.fits(r.charge+idSize) {
		s.put(r)
		s.wakeSender()
		s.hub.counts.progress.Add(1)
	}
}

// putAnswer appends a created or canceled response, which is never dropped. mu is held.
func (s *Stream) putAnswer(r Response) {
	if s.mu.closed {
		return
	}
	s.put(run{id: r.WatchID, bytes: headerSize, charge: answerSize, answer: &r})
	s.mu.answers++
	s.wakeSender()
}

// wakeSender wakes the sender if it waits. mu is held.
func (s *Stream) wakeSender() {
	if s.mu.waiting {
		s.mu.waiting = false
		s.signal()
	}
}

// signal reports the stream to its Ready, or gives the sender in Next a token. A token of an
// earlier call wakes the sender as well. mu is held, or the caller has changed waiting to false.
func (s *Stream) signal() {
	if s.mu.ready != nil { // not changed since the first call of Take
		s.mu.ready.Add(s.mu.owner)
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next waits until responses are queued, appends them to dst in order and returns it. It returns at
// most approximately Options.NextBytes at once, or all queued responses if they are smaller.
//
// The error is ErrClosed when the stream or the hub is closed, or ctx's. Next then returns dst
// unchanged, and calls of Create, Cancel and Refuse that wait for answers to be sent continue.
func (s *Stream) Next(ctx context.Context, dst []Response) ([]Response, error) {
	s.mu.Lock()
	if s.wake == nil {
		s.wake, s.done = make(chan struct{}, 1), make(chan struct{})
		if s.mu.closed { // otherwise Close closes it
			close(s.done)
		}
	}
	s.mu.Unlock()
	for {
		dst, waiting, err := s.next(dst, s.hub.opt.NextBytes, false)
		if err != nil || !waiting {
			return dst, err
		}
		select {
		case <-s.wake:
			continue
		case <-s.done:
			err = ErrClosed
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		s.mu.waiting, s.mu.gone = false, true
		s.mu.room.Broadcast()
		s.mu.Unlock()
		return dst, err
	}
}

// next counts the responses of the last call as sent, and takes queued responses, at most
// approximately the given number of bytes. If there are none, the sender is waiting from now on.
// together says whether watchers with the same response share one.
func (s *Stream) next(dst []Response, most int64, together bool) (_ []Response,
	waiting bool, err error) {
	s.mu.Lock()
	s.mu.gone = false
	s.charge(-s.mu.inflight)
	s.mu.inflight = 0
	resume := s.resumes()
	n := len(dst)
	if s.mu.closed {
		err = ErrClosed
	} else {
		dst = s.take(dst, most, together)
	}
	s.mu.waiting = len(dst) == n && !s.mu.closed
	waiting = s.mu.waiting
	s.mu.Unlock()
	if resume {
		s.hub.mu.Lock()
		s.mu.Lock()
		s.hub.resume(s)
		s.mu.Unlock()
		s.hub.mu.Unlock()
	}
	return dst, waiting, err
}

// take moves responses of at most approximately the given number of bytes from the queue to dst. mu
// is held.
func (s *Stream) take(dst []Response, most int64, together bool) []Response {
	q := &s.mu
	answers := q.answers
	var bytes int64
	for q.runHead < len(q.runs) && bytes < most {
		r := &q.runs[q.runHead]
		n := min(r.len(), int((most-bytes+r.bytes-1)/r.bytes))
		bytes += int64(n) * r.bytes
		q.inflight += int64(n) * idSize
		if r.answer != nil {
			dst = append(dst, *r.answer)
			q.answers--
		} else {
			a := Response{WatchID: r.id, Also: r.also[: n-1 : n-1], Revision: r.rev,
				Events: r.events, Fragment: r.more}
			if together {
				dst = append(dst, a)
			} else {
				dst = a.each(dst)
			}
		}
		if n < r.len() {
			r.id, r.also = r.also[n-1], r.also[n:]
			break
		}
		q.inflight += r.charge
		*r = run{}
		q.runHead++
	}
	switch {
	case q.runHead == len(q.runs):
		q.runs, q.runHead = reuse(q.runs, 32), 0
	case q.runHead > len(q.runs)/2:
		n := copy(q.runs, q.runs[q.runHead:])
		clear(q.runs[n:])
		q.runs, q.runHead = q.runs[:n], 0
	}
	if q.answers < answers {
		q.room.Broadcast()
		if len(q.runs) == 0 {
			q.runs = nil // clients rarely create watchers, and a watcher may have no event for long
		}
	}
	return dst
}

// reuse empties s, and releases its memory if it has room for more than keep elements.
func reuse[T any](s []T, keep int) []T {
	if cap(s) > keep {
		return nil
	}
	return s[:0]
}
