package h2

import "sync/atomic"

// charge notes that the client occupies n more bytes. c.mu is held, and the stream is not closed.
func (s *Stream) charge(n int64) {
	s.charged.Add(n)
	s.c.unread.Add(n)
}

// discharge notes that the client occupies n bytes less.
func (s *Stream) discharge(n int64) {
	if k := takeUp(&s.charged, n); k > 0 {
		s.c.unread.Add(-k)
	}
}

// expectedStream is a stream whose client wants to send more bytes of a long message.
type expectedStream struct {
	s *Stream
	n int64
}

// Expect allows the client to send n more bytes, which belong to one message. If the client may send much on other streams
// already, it has to wait for those.
func (s *Stream) Expect(n int) {
	more := int64(n) - s.recv.Load()
	if more <= 0 {
		return
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed || s.clientEnded {
		return
	}
	c.mu.expecting = append(c.mu.expecting, expectedStream{s, more})
	c.promise()
}

// promise lets clients send the rest of long messages, as many as there is memory for, and at least one. c.mu is held.
func (c *Conn) promise() {
	for len(c.mu.expecting) > 0 {
		e := c.mu.expecting[0]
		if !e.s.closed {
			if c.mu.promised > 0 && c.mu.promised+e.n > c.o.MaxUnreadBytes/2 {
				return
			}
			c.mu.promised += e.n
			e.s.promised += e.n
			e.s.extra.Add(e.n)
			e.s.grantLocked(e.n)
		}
		c.mu.expecting[0] = expectedStream{}
		c.mu.expecting = c.mu.expecting[1:]
	}
	c.mu.expecting = nil
}

// Taken notes that n bytes of the body were taken, so that the client may send others instead.
func (s *Stream) Taken(n int) {
	if n == 0 {
		return
	}
	back := int64(n)
	s.discharge(back)
	if extra := takeUp(&s.extra, back); extra > 0 {
		back -= extra
		c := s.c
		c.mu.Lock()
		extra = min(extra, s.promised)
		s.promised -= extra
		c.mu.promised -= extra
		c.promise()
		c.mu.Unlock()
	}
	// Small amounts are collected: a message that needs them is expected when it begins.
	if owed := s.owed.Add(back); owed >= streamWindow/4 {
		s.owed.Add(-owed)
		s.grant(owed)
	}
}

// takeUp subtracts up to n from a number that must not become negative, and returns how much.
func takeUp(from *atomic.Int64, n int64) int64 {
	for {
		have := from.Load()
		k := min(have, n)
		if k <= 0 || from.CompareAndSwap(have, have-k) {
			return k
		}
	}
}

// grant allows the client to send n more bytes.
func (s *Stream) grant(n int64) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.grantLocked(n)
}

// grantLocked is grant while c.mu is held.
func (s *Stream) grantLocked(n int64) {
	c := s.c
	if s.closed || s.clientEnded || c.mu.lost || c.mu.fatal {
		return
	}
	s.recv.Add(n)
	c.mu.control = appendWindowUpdate(c.mu.control, s.id, uint32(n))
	c.handOver()
}
