package h2

import "sync/atomic"

const (
	// heldHead is how many bytes of a header are not counted any more when a handler runs. Others are counted until the stream
	// ends: a few bytes may mean a large header, of which a client could let the server keep many.
	heldHead = 4 << 10
	// streamCost is about what a stream occupies besides its header, its body and its answer.
	streamCost = 1 << 10
	// streamWindow is how many bytes a client may send on a stream before they are taken.
	streamWindow = 64<<10 - 1
)

// chargeUnread notes that the client occupies n more bytes. mu is held, and the stream exists.
func (s *Stream) chargeUnread(n int64) {
	s.charged.Add(n)
	s.l.unread.Add(n)
}

// dischargeUnread notes that the client occupies n bytes less.
func (s *Stream) dischargeUnread(n int64) {
	if k := subtractUpTo(&s.charged, n); k > 0 {
		s.l.unread.Add(-k)
	}
}

// Occupy notes that the client occupies n more bytes of memory, without a handler's consent, until Vacate.
func (s *Stream) Occupy(n int) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.state.gone() {
		s.chargeUnread(int64(n))
	}
}

// Vacate notes that n bytes of Occupy are free.
func (s *Stream) Vacate(n int) { s.dischargeUnread(int64(n)) }

// Expect allows the client to send n more bytes, which belong to one message. If the client may send much on other streams
// already, it has to wait for those.
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
	l.mu.promises.addWaiting(s, more) // the message before is complete, if it waited
	l.givePromises()
}

// Taken notes that n bytes of the body were taken, so that the client may send others instead.
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
	// Small amounts are collected: a message that needs them is expected when it begins.
	if owed := s.owed.Add(back); owed >= streamWindow/4 {
		s.owed.Add(-owed)
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		s.l.grantWindow(s, owed)
	}
}

// returnPadding lets the client send as many bytes as the padding of a frame had, unless that was the last one. It does so at once: what
// Expect has granted is enough for the message only, and a client that keeps to its window could not send the rest. The reader calls it,
// and the update is written before it reads again.
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

// subtractUpTo subtracts up to n from a number that must not become negative, and returns how much.
func subtractUpTo(from *atomic.Int64, n int64) int64 {
	for {
		have := from.Load()
		k := min(have, n)
		if k <= 0 || from.CompareAndSwap(have, have-k) {
			return k
		}
	}
}
