package h2

import "sync/atomic"

const (
	// heldHead is how many bytes of a header stop counting when a handler runs. The rest counts
	// until the stream ends: a few bytes on the wire may mean a large header, and a client could
	// make the server keep many.
	heldHead = 4 << 10
	// streamCost is about how many bytes a stream occupies besides its header, body and answer.
	streamCost = 1 << 10
	// streamWindow is how many bytes a client may send on a stream before they are taken.
	streamWindow = 64<<10 - 1
)

// chargeUnread notes that the client occupies n more bytes. mu must be held, and the stream must
// exist.
func (s *Stream) chargeUnread(n int64) {
	s.charged.Add(n)
	s.l.unread.Add(n)
}

// dischargeUnread notes that the client occupies n bytes less, at most as many as are charged.
func (s *Stream) dischargeUnread(n int64) {
	if k := subtractUpTo(&s.charged, n); k > 0 {
		s.l.unread.Add(-k)
	}
}

// Occupy notes that the client occupies n more bytes without a handler's consent, until Vacate.
func (s *Stream) Occupy(n int) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.state.gone() {
		s.chargeUnread(int64(n))
	}
}

// Vacate notes that n bytes of Occupy are free again.
func (s *Stream) Vacate(n int) { s.dischargeUnread(int64(n)) }

// Expect allows the client to send the rest of a message, n bytes. If the client may send much on
// other streams already, this message waits for those.
func (s *Stream) Expect(n int) {
	more := int64(n) - s.recv.Load()
	if more <= 0 {
		return
	}
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.state.gone() || s.state.bodyEnded() {
		return
	}
	l.mu.promises.addWaiting(s, more) // if the message before has waited, it is complete
	l.givePromises()
}

// Taken notes that n bytes of the body were taken, and lets the client send as many again.
func (s *Stream) Taken(n int) {
	if n == 0 {
		return
	}
	back := int64(n)
	s.dischargeUnread(back)
	if extra := subtractUpTo(&s.extra, back); extra > 0 {
		back -= extra
		l := s.l
		l.mu.Lock()
		l.mu.promises.takeBack(s, extra)
		l.givePromises()
		l.mu.Unlock()
	}
	// Small amounts are collected. Expect grants a message what it needs.
	if owed := s.owed.Add(back); owed >= streamWindow/4 {
		s.owed.Add(-owed)
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		s.l.grantWindow(s, owed)
	}
}

// returnPadding lets the client send n more bytes for the padding of a frame, unless the frame was
// the last one. It does so at once: Expect grants just enough for the message, so a client that
// obeys its window could not send the rest. Only the reader calls it; the update is written before
// it reads again.
func (s *Stream) returnPadding(n int64, last bool) {
	if n == 0 {
		return
	}
	s.dischargeUnread(n)
	if last {
		return
	}
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.state.gone() && l.mu.state.queues() {
		s.recv.Add(n)
		l.mu.out.control = appendWindowUpdate(l.mu.out.control, s.id, uint32(n))
	}
}

// subtractUpTo subtracts up to n from a number that must not become negative, and returns how much
// it has subtracted.
func subtractUpTo(from *atomic.Int64, n int64) int64 {
	for {
		have := from.Load()
		k := min(have, n)
		if k <= 0 || from.CompareAndSwap(have, have-k) {
			return k
		}
	}
}
