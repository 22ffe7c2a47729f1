package h2

import (
	"context"

	"google.golang.org/grpc/mem"
)

// Conn returns the connection of the stream.
func (s *Stream) Conn() *Conn { return s.c }

// AnswerLater is Answer without the write: that is done by the reader before it reads again, or by Flush.
func (s *Stream) AnswerLater(header *Header, head [headSize]byte, data mem.BufferSlice, trailer *Header) bool {
	c := s.c
	c.mu.Lock()
	if s.closed || s.finished {
		s.finishLocked(trailer)
		c.mu.Unlock()
		data.Free()
		return false
	}
	much := data.Len() >= maxFrame
	s.enqueue(header, message{head: head, nhead: headSize, data: data}, headSize+data.Len())
	s.finishLocked(trailer)
	if much {
		c.handOver() // so that the answers that wait for a write are small
	}
	c.mu.Unlock()
	s.endContext(context.Canceled)
	return true
}

// FinishLater is Finish without the write, like AnswerLater.
func (s *Stream) FinishLater(trailer, whole *Header) bool {
	c := s.c
	c.mu.Lock()
	if !s.out.begun {
		trailer = whole
	}
	ok := s.finishLocked(trailer)
	c.mu.Unlock()
	if ok {
		s.endContext(context.Canceled)
	}
	return ok
}

// Flush writes what is ready, without waiting for the client.
func (c *Conn) Flush() {
	c.mu.Lock()
	c.writeReady()
}

// writeReady writes what is ready if there is no writer, without waiting: what the socket does not take at once, a worker
// writes. So does it with TLS, where a write may wait. c.mu is held, and unlocked.
func (c *Conn) writeReady() {
	if c.mu.writing || c.mu.lost || !c.hasOutput() {
		c.mu.Unlock()
		return
	}
	c.mu.writing = true
	c.mu.Unlock()
	if !c.direct.possible() {
		c.o.Workers.Run(c.writeAll)
		return
	}
	b := batches.Get().(*batch)
	for turns := turnsOfOwner; ; turns-- {
		if !c.next(b, turns > 0) {
			break
		}
		if turns == 0 {
			c.o.Workers.Run(c.writeAll)
			break
		}
		if b.len() == 0 {
			continue // streams were filled that must not send
		}
		n, err := c.direct.write(b)
		if err == nil && n < b.len() {
			c.o.Workers.Run(func() { c.writeRest(b, n) })
			return
		}
		b.reset()
		if err != nil {
			c.close(err)
		}
	}
	b.release()
}

// writeRest writes a batch of which n bytes are written, and what is ready after it.
func (c *Conn) writeRest(b *batch, n int) {
	err := b.writeFrom(c, n)
	b.reset()
	b.release()
	if err != nil {
		c.close(err)
	}
	c.writeAll()
}
