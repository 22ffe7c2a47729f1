package h2

import (
	"net"
	"runtime"
	"sync"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
)

const (
	// maxFrame is the largest frame in either direction. Clients must accept it.
	maxFrame = 16 << 10
	// batchBytes is how much is written at once.
	batchBytes = 64 << 10
	// copyMost is the size in bytes up to which a buffer is copied instead of being written from its place.
	copyMost = 2 << 10
	// turnsOfOwner is how many batches the goroutine writes that made output ready, before a worker takes its place.
	turnsOfOwner = 4
	// maxControl is how many bytes of frames without data may be queued before the reader waits for the writer.
	maxControl = 64 << 10
)

// batch is what one write has: bytes of its own, and buffers between them.
type batch struct {
	own   []byte
	parts []part
	refs  int // bytes of buffers
	vec   net.Buffers
	free  []mem.Buffer // after the write
}

// part is a buffer that is written after the first own bytes up to at.
type part struct {
	at   int
	data []byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// maxPooledBatch is the largest buffer that is kept for later batches.
const maxPooledBatch = 128 << 10

func (b *batch) len() int { return len(b.own) + b.refs }

func (b *batch) reset() {
	for _, buf := range b.free {
		buf.Free()
	}
	clear(b.free)
	clear(b.parts)
	clear(b.vec)
	b.own, b.parts, b.free, b.refs = b.own[:0], b.parts[:0], b.free[:0], 0
}

// write writes the batch: to a socket in one call, otherwise it has no parts.
func (b *batch) write(c *Conn) error { return b.writeFrom(c, 0) }

// writeFrom writes the batch without its first n bytes, which are written.
func (b *batch) writeFrom(c *Conn, n int) error {
	if len(b.parts) == 0 {
		_, err := c.nc.Write(b.own[n:])
		return err
	}
	vec := b.vector()
	for n > 0 {
		k := min(n, len(vec[0]))
		if n -= k; k == len(vec[0]) {
			vec = vec[1:]
		} else {
			vec[0] = vec[0][k:]
		}
	}
	announceWrite()
	_, err := vec.WriteTo(c.socket)
	clear(b.vec)
	return err
}

// vector returns the bytes of the batch in order.
func (b *batch) vector() net.Buffers {
	vec, at := b.vec[:0], 0
	for _, p := range b.parts {
		if p.at > at {
			vec = append(vec, b.own[at:p.at])
		}
		vec, at = append(vec, p.data), p.at
	}
	if at < len(b.own) {
		vec = append(vec, b.own[at:])
	}
	b.vec = vec
	return vec
}

// release returns an empty batch to the pool.
func (b *batch) release() {
	if cap(b.own) <= maxPooledBatch {
		batches.Put(b)
	}
}

// startWriter makes the caller the writer if there is none. c.mu is held, and unlocked.
func (c *Conn) startWriter() {
	if c.mu.writing || c.mu.lost || !c.hasOutput() {
		c.mu.Unlock()
		return
	}
	c.mu.writing = true
	others := len(c.mu.streams) > 1
	c.mu.Unlock()
	if others {
		// What other goroutines are about to answer goes into the same write.
		runtime.Gosched()
	}
	c.write(turnsOfOwner)
}

// handOver lets a worker write if there is output and no writer. c.mu is held.
func (c *Conn) handOver() {
	if c.mu.writing || c.mu.lost || !c.hasOutput() {
		return
	}
	c.mu.writing = true
	c.o.Workers.Run(c.writeAll)
}

func (c *Conn) writeAll() { c.write(-1) }

// write writes what is ready until there is nothing, or turns are over. Only the writer calls it.
func (c *Conn) write(turns int) {
	b := batches.Get().(*batch)
	defer b.release()
	for ; ; turns-- {
		if !c.next(b, turns != 0) {
			return
		}
		if turns == 0 {
			c.o.Workers.Run(c.writeAll)
			return
		}
		if b.len() == 0 {
			continue // streams were filled that must not send
		}
		err := b.write(c)
		b.reset()
		if err != nil {
			c.close(err)
		}
	}
}

// next builds the next batch, if build is set. It returns false if nothing is ready; then there is no writer any more.
func (c *Conn) next(b *batch, build bool) (more bool) {
	c.mu.Lock()
	c.fill()
	dropped := c.mu.dropped
	c.mu.dropped = nil
	if !c.hasOutput() || c.mu.lost {
		dropped.Free() // before Serve can return
		c.mu.writing = false
		c.mu.changed.Broadcast()
		over := c.over()
		c.mu.shut = c.mu.shut || over
		c.mu.Unlock()
		if over {
			c.shut()
		}
		return false
	}
	if build {
		c.build(b)
		c.mu.changed.Broadcast()
	}
	c.mu.Unlock()
	dropped.Free()
	return true
}

// hasOutput reports whether something can be written. c.mu is held.
func (c *Conn) hasOutput() bool {
	return !c.mu.shut && (len(c.mu.fills) > 0 || len(c.mu.control) > 0 || c.mu.prompt != nil || c.mu.readyList.head != nil || c.mu.window > 0 && c.mu.stalled.head != nil)
}

// nextStream returns the stream whose turn it is: streams that have waited for the window of the connection first. c.mu is held.
func (c *Conn) nextStream() *Stream {
	if c.mu.window > 0 {
		if s := c.mu.stalled.pop(); s != nil {
			return s
		}
	}
	return c.mu.readyList.pop()
}

// build fills a batch: frames without data first, then the streams by turns. c.mu is held.
func (c *Conn) build(b *batch) {
	b.own = append(b.own, c.mu.control...)
	if c.mu.control = c.mu.control[:0]; cap(c.mu.control) > 1<<10 {
		c.mu.control = nil
	}
	b.own = takePrompt(c, b.own)
	for b.len() < batchBytes {
		s := c.nextStream()
		if s == nil {
			return
		}
		c.emit(b, s)
	}
}

// emit writes a turn of a stream, and lists it again if it has more. c.mu is held.
func (c *Conn) emit(b *batch, s *Stream) {
	if s.closed {
		return
	}
	c.mu.earned += 2
	c.mu.answered = true
	if s.out.header != nil && c.tooLarge(s.out.header) || s.finished && c.tooLarge(s.out.trailer) {
		c.resetLocked(s, http2.ErrCodeInternal) // as grpc-go does
		s.endContext(byCancel)
		return
	}
	if s.out.header != nil {
		b.own = c.appendHeaders(b.own, s.id, s.out.header, false)
		s.out.header = nil
	}
	if s.out.bytes > 0 {
		n := int(min(int64(s.out.bytes), maxFrame, s.out.window, c.mu.window))
		if n > 0 {
			c.emitData(b, s, n)
		}
		if s.out.bytes > 0 {
			switch {
			case s.out.window <= 0: // until the client opens it
			case c.mu.window <= 0:
				c.mu.stalled.push(s)
			default:
				c.mu.readyList.push(s)
			}
			return
		}
	}
	if s.finished {
		if s.out.trailer == nil {
			b.own = appendFrame(b.own, 0, http2.FrameData, http2.FlagDataEndStream, s.id)
		} else {
			b.own = c.appendHeaders(b.own, s.id, s.out.trailer, true)
		}
		if !s.clientEnded {
			b.own = appendReset(b.own, s.id, http2.ErrCodeNo)
		}
		c.remove(s)
	} else if s.out.full {
		s.refill()
	}
}

// tooLarge reports whether the client accepts no such header. c.mu is held.
func (c *Conn) tooLarge(h *Header) bool {
	if h == nil || c.mu.mostHead >= 1<<31 { // the latter as usual
		return false
	}
	n := int64(0)
	for i := range h.Fields {
		n += int64(h.Fields[i].Size())
	}
	return n > c.mu.mostHead
}

// emitData writes a frame of n bytes of the queue of a stream. c.mu is held.
func (c *Conn) emitData(b *batch, s *Stream, n int) {
	if n < s.out.bytes && n < copyMost {
		c.mu.earned -= 2 // a client that takes little at a time earns nothing
	}
	b.own = appendFrame(b.own, n, http2.FrameData, 0, s.id)
	s.out.window -= int64(n)
	c.mu.window -= int64(n)
	s.out.bytes -= n
	for n > 0 {
		m := &s.out.queue[0]
		if m.nhead > 0 {
			k := min(int(m.nhead), n)
			from := headSize - int(m.nhead)
			b.own = append(b.own, m.head[from:from+k]...)
			m.nhead -= uint8(k)
			n -= k
		}
		for n > 0 && len(m.data) > 0 {
			buf := m.data[0]
			rest := buf.ReadOnlyData()[m.off:]
			k := min(len(rest), n)
			if k <= copyMost || c.socket == nil {
				b.own = append(b.own, rest[:k]...)
			} else {
				b.parts = append(b.parts, part{len(b.own), rest[:k]})
				b.refs += k
			}
			n -= k
			if m.off += k; k == len(rest) {
				b.free = append(b.free, buf)
				m.data, m.off = m.data[1:], 0
			}
		}
		if m.nhead == 0 && len(m.data) == 0 {
			*m = message{}
			if s.out.queue = s.out.queue[1:]; len(s.out.queue) == 0 {
				s.out.queue = s.out.first[:0]
			}
		}
	}
	if s.out.room != nil && s.out.bytes < s.quota() {
		select {
		case s.out.room <- struct{}{}:
		default:
		}
	}
	if s.out.full && s.out.bytes < sendQuota/2 && s.room() > 0 {
		s.out.full = false
		c.listFill(s)
	}
}

// list is a queue of streams. A stream is in one list at most.
type list struct{ head, tail *Stream }

func (l *list) push(s *Stream) {
	if s.out.listed {
		return
	}
	s.out.listed, s.out.stalled, s.out.prev = true, l == &s.c.mu.stalled, l.tail
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.out.next = s
	}
	l.tail = s
}

func (l *list) pop() *Stream {
	s := l.head
	if s != nil {
		s.unlist()
	}
	return s
}

// unlist removes a stream from its list.
func (s *Stream) unlist() {
	if !s.out.listed {
		return
	}
	l := &s.c.mu.readyList
	if s.out.stalled {
		l = &s.c.mu.stalled
	}
	if s.out.prev == nil {
		l.head = s.out.next
	} else {
		s.out.prev.out.next = s.out.next
	}
	if s.out.next == nil {
		l.tail = s.out.prev
	} else {
		s.out.next.out.prev = s.out.prev
	}
	s.out.listed, s.out.prev, s.out.next = false, nil, nil
}

// ready lists a stream that has something to write. c.mu is held.
func (c *Conn) ready(s *Stream) {
	if s.out.bytes > 0 && s.out.window <= 0 && s.out.header == nil {
		return
	}
	c.mu.readyList.push(s)
}
