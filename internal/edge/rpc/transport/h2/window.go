package h2

import (
	"slices"
	"sync/atomic"
)

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

// Occupy notes that the client occupies n more bytes of memory, without a handler's consent, until Vacate.
func (s *Stream) Occupy(n int) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.closed {
		s.charge(int64(n))
	}
}

// Vacate notes that n bytes of Occupy are free.
func (s *Stream) Vacate(n int) { s.discharge(int64(n)) }

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
	if s.expects == 0 {
		c.mu.expecting = append(c.mu.expecting, s)
		s.expected = true
	}
	s.expects = more // the message before is complete, if it waited
	c.promise()
}

// withdraw notes that a stream does not wait for a promise any more. c.mu is held.
func (c *Conn) withdraw(s *Stream) {
	if s.expects == 0 {
		return
	}
	s.expects = 0
	// The first one of those that wait may do so for long: others must not be kept in memory until then.
	if c.mu.withdrawn++; c.mu.withdrawn > len(c.mu.expecting)/2 {
		c.mu.expecting = slices.DeleteFunc(c.mu.expecting, func(s *Stream) bool { return s.expects == 0 })
		c.mu.withdrawn = 0
	}
}

// promise lets clients send the rest of long messages, as many as there is memory for, and at least one. c.mu is held.
func (c *Conn) promise() {
	for len(c.mu.expecting) > 0 {
		s := c.mu.expecting[0]
		if n := s.expects; n > 0 {
			if c.mu.promised > 0 && c.mu.promised+n > c.o.MaxUnreadBytes/2 {
				return
			}
			s.expects = 0
			c.mu.promised += n
			s.promised += n
			s.extra.Add(n)
			s.grantLocked(n)
		} else {
			c.mu.withdrawn--
		}
		c.mu.expecting[0] = nil
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

// returnPadding lets the client send as many bytes as the padding of a frame had, unless that was the last one. It does so at once: what
// Expect has granted is enough for the message only, and a client that keeps to its window could not send the rest. The reader calls it,
// and the update is written before it reads again.
func (s *Stream) returnPadding(n int64, last bool) {
	if n == 0 {
		return
	}
	s.discharge(n)
	if last {
		return
	}
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.closed && !c.mu.lost && !c.mu.fatal {
		s.recv.Add(n)
		c.mu.control = appendWindowUpdate(c.mu.control, s.id, uint32(n))
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
