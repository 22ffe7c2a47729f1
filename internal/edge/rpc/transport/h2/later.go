package h2

import (
	"bytes"
	"sync"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
)

// Conn returns the connection of the stream.
func (s *Stream) Conn() *Conn { return s.c }

// NothingRead reports whether nothing was read from the connection that is not processed yet. The reader of the connection calls it.
func (s *Stream) NothingRead() bool { return s.c.in.r == s.c.in.w }

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
	s.endContext(byCancel)
	return true
}

// SendSoon is Send for a message, with the bytes in front of it, that is copied; the reader of the connection may call it, since it does
// not wait and does not write: the reader does that before it reads again. A small message becomes a frame at once, as in AnswerPrompt.
// It reports whether the message is behind others, or waits for a window: then the caller must not send many more this way.
func (s *Stream) SendSoon(header *Header, m []byte) (behind bool) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed || s.finished {
		return false
	}
	if header != nil || s.out.header != nil || s.out.bytes > 0 || !s.prompt(len(m)) {
		data := mem.BufferSlice{mem.SliceBuffer(bytes.Clone(m[headSize:]))}
		s.enqueue(header, message{head: [headSize]byte(m), nhead: headSize, data: data}, len(m))
		c.ready(s)
		return true
	}
	*c.mu.prompt = append(appendFrame(*c.mu.prompt, len(m), http2.FrameData, 0, s.id), m...)
	s.out.window -= int64(len(m))
	c.mu.window -= int64(len(m))
	c.mu.prompts++
	return false
}

// prompt reports whether a message of n bytes may become a frame at once, and makes room for that. c.mu is held.
func (s *Stream) prompt(n int) bool {
	c := s.c
	if n > copyMost || c.mu.prompt != nil && len(*c.mu.prompt)+n > maxPrompt || int64(n) > min(s.out.window, c.mu.window) ||
		c.mu.stalled.head != nil || c.mu.lost || c.mu.shut {
		return false
	}
	if c.mu.prompt == nil {
		c.mu.prompt = prompts.Get().(*[]byte)
	}
	return true
}

// maxPrompt is about how many bytes of small answers wait for the writer at most. Further ones wait with their streams, whose memory
// is counted.
const maxPrompt = 16 << 10

// prompts are buffers for them: a connection without any has none.
var prompts = sync.Pool{New: func() any { return new(make([]byte, 0, maxPrompt)) }}

// AnswerPrompt is AnswerLater for a message, with the bytes in front of it, that is copied. A small answer becomes frames at once, if
// nothing keeps it from being sent next: it needs no queue, and the stream ends here. free reports that nothing refers to the stream any
// more but what the caller of AnswerPrompt and its user have kept: then it may be used for another request.
func (s *Stream) AnswerPrompt(header *Header, m []byte, trailer *Header) (free bool) {
	c, n := s.c, int64(len(m))
	c.mu.Lock()
	if s.closed || s.finished || s.out.begun || c.tooLarge(header) || c.tooLarge(trailer) || !s.prompt(len(m)) {
		c.mu.Unlock()
		s.AnswerLater(header, [headSize]byte(m), mem.BufferSlice{mem.SliceBuffer(bytes.Clone(m[headSize:]))}, trailer)
		return false
	}
	b := c.appendHeaders(*c.mu.prompt, s.id, header, false)
	b = append(appendFrame(b, len(m), http2.FrameData, 0, s.id), m...)
	b = c.appendHeaders(b, s.id, trailer, true)
	if !s.clientEnded {
		b = appendReset(b, s.id, http2.ErrCodeNo)
	}
	c.mu.window -= n
	*c.mu.prompt = b
	c.mu.prompts++
	s.finished = true
	c.remove(s)
	// A stream whose body has not ended is still read, and one that has waited for the window of a long message may be in a list.
	free = s.clientEnded && !s.expected
	c.mu.Unlock()
	return s.endContext(byCancel) && free
}

// takePrompt appends the small answers of a connection to b. They precede all frames with headers that are made later, since these
// may refer to the table of theirs. c.mu is held.
func takePrompt(c *Conn, b []byte) []byte {
	if c.mu.prompt == nil {
		return b
	}
	b = append(b, *c.mu.prompt...)
	*c.mu.prompt = (*c.mu.prompt)[:0]
	prompts.Put(c.mu.prompt)
	c.mu.prompt = nil
	c.mu.earned += 2 * c.mu.prompts
	c.mu.answered = true
	c.mu.prompts = 0
	return b
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
		s.endContext(byCancel)
	}
	return ok
}

// Flush writes what is ready, without waiting for the client.
func (c *Conn) Flush() {
	c.mu.Lock()
	if c.mu.costly && len(c.mu.fills) > 0 {
		c.handOver() // the caller works for other clients too
		c.mu.Unlock()
		return
	}
	c.writeReady(turnsOfOwner)
}

// writeReady writes what is ready if there is no writer, at most so many batches, without waiting: the rest, and what the socket does
// not take at once, a worker writes. So does it with TLS, where a write may wait. c.mu is held, and unlocked.
func (c *Conn) writeReady(turns int) {
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
	for ; ; turns-- {
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
