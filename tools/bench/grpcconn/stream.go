package grpcconn

import (
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/net/http2"
)

// stream is one call.
type stream struct {
	id uint32

	// Guarded by the connection's mu.
	window    int64  // what the server lets us send
	queue     []byte // framed messages that wait for a window
	queued    int    // how much of queue has gone out
	closing   bool   // half-close when queue is empty
	sentEnd   bool
	isBlocked bool

	// Owned by the reader.
	handler  Handler
	parts    PartHandler // handler, if it takes parts
	partial  []byte      // the beginning of a message that is not whole yet
	left     int         // bytes of the current message still to come, when it goes to parts
	consumed int         // received since the last window update
}

func (s *stream) reset(id uint32, window int64, h Handler) {
	q, p := s.queue[:0], s.partial[:0]
	if cap(q) > 64<<10 {
		q = nil
	}
	if cap(p) > 64<<10 {
		p = nil
	}
	parts, _ := h.(PartHandler)
	*s = stream{id: id, window: window, handler: h, parts: parts, queue: q, partial: p}
}

// Open queues a new call of method (its full path) with a first message, which may be nil for
// none, and half-closes it if end is true. It returns the stream's id.
func (c *Conn) Open(method string, h Handler, msg []byte, end bool) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	if m.err != nil {
		return 0, m.err
	}
	if m.nextID > maxWindow-2 {
		return 0, fmt.Errorf("connection has used up its stream ids")
	}
	var s *stream
	if n := len(m.free); n > 0 {
		s, m.free = m.free[n-1], m.free[:n-1]
	} else {
		s = new(stream)
	}
	s.reset(m.nextID, m.initial, h)
	m.nextID += 2
	m.streams[s.id] = s

	block := m.headers.block(c.authority, method, c.opts.UserAgent)
	m.out = appendFrameHeader(m.out, len(block), http2.FrameHeaders,
		http2.FlagHeadersEndHeaders, s.id)
	m.out = append(m.out, block...)
	if msg != nil || end {
		c.sendLocked(s, msg, end)
	}
	return s.id, nil
}

// Send queues a message on an open stream, and half-closes the stream if end is true. A stream
// that has ended swallows it.
func (c *Conn) Send(id uint32, msg []byte, end bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	if s := c.mu.streams[id]; s != nil {
		c.sendLocked(s, msg, end)
	}
	return nil
}

// CloseSend queues the half-close of a stream.
func (c *Conn) CloseSend(id uint32) error { return c.Send(id, nil, true) }

// Cancel queues a reset of the stream; its handler's End follows on the reader. A stream that has
// ended already is left alone.
func (c *Conn) Cancel(id uint32) {
	s := c.removeStream(id, true)
	if s == nil {
		return
	}
	c.mu.Lock()
	c.mu.canceled = append(c.mu.canceled, s)
	c.mu.Unlock()
	// A deadline in the past wakes a reader that waits in the socket. If the socket is closed the
	// reader is awake anyway.
	_ = c.nc.SetReadDeadline(time.Unix(1, 0))
}

// sendLocked queues a message. The connection's mu is held.
func (c *Conn) sendLocked(s *stream, msg []byte, end bool) {
	if s.sentEnd || s.closing {
		return
	}
	m := &c.mu
	size := 0
	if msg != nil {
		size = messageHeader + len(msg)
	}
	if !s.isBlocked && size <= maxFrame && int64(size) <= min(m.window, s.window) {
		var flags http2.Flags
		if end {
			flags, s.sentEnd = http2.FlagDataEndStream, true
		}
		m.out = appendFrameHeader(m.out, size, http2.FrameData, flags, s.id)
		if msg != nil {
			m.out = appendMessageHeader(m.out, len(msg))
			m.out = append(m.out, msg...)
		}
		m.window -= int64(size)
		s.window -= int64(size)
		return
	}
	if msg != nil {
		s.queue = appendMessageHeader(s.queue, len(msg))
		s.queue = append(s.queue, msg...)
	}
	s.closing = end
	if !s.isBlocked {
		s.isBlocked = true
		m.blocked = append(m.blocked, s)
	}
	c.sendWaiting()
}

// sendWaiting frames queued data as far as the windows allow. The connection's mu is held.
func (c *Conn) sendWaiting() {
	m := &c.mu
	keep := m.blocked[:0]
	for _, s := range m.blocked {
		for s.queued < len(s.queue) {
			n := int(min(m.window, s.window, maxFrame, int64(len(s.queue)-s.queued)))
			if n <= 0 {
				break
			}
			var flags http2.Flags
			if s.closing && s.queued+n == len(s.queue) {
				flags, s.sentEnd = http2.FlagDataEndStream, true
			}
			m.out = appendFrameHeader(m.out, n, http2.FrameData, flags, s.id)
			m.out = append(m.out, s.queue[s.queued:s.queued+n]...)
			s.queued += n
			m.window -= int64(n)
			s.window -= int64(n)
		}
		if s.queued < len(s.queue) {
			keep = append(keep, s)
			continue
		}
		if s.closing && !s.sentEnd {
			m.out = appendFrameHeader(m.out, 0, http2.FrameData, http2.FlagDataEndStream, s.id)
			s.sentEnd = true
		}
		s.queue, s.queued, s.isBlocked = s.queue[:0], 0, false
	}
	clear(m.blocked[len(keep):])
	m.blocked = keep
}

// removeStream removes a stream, and resets it at the server if reset is true. It returns nil if
// the stream is not there any more.
func (c *Conn) removeStream(id uint32, reset bool) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.streams[id]
	if s == nil {
		return nil
	}
	delete(c.mu.streams, id)
	if s.isBlocked {
		for i, b := range c.mu.blocked {
			if b == s {
				c.mu.blocked = append(c.mu.blocked[:i], c.mu.blocked[i+1:]...)
				break
			}
		}
	}
	if reset {
		c.mu.out = appendReset(c.mu.out, id, http2.ErrCodeCancel)
	}
	return s
}

// releaseStream keeps an ended stream for the next call.
func (c *Conn) releaseStream(s *stream) {
	c.mu.Lock()
	if len(c.mu.free) < 1024 {
		c.mu.free = append(c.mu.free, s)
	}
	c.mu.Unlock()
}

// addData takes the payload of a DATA frame. It runs on the reader.
func (s *stream) addData(at time.Time, data []byte) error {
	for len(data) > 0 {
		if s.left > 0 {
			n := min(s.left, len(data))
			s.left -= n
			s.parts.Part(at, data[:n], s.left == 0)
			data = data[n:]
			continue
		}
		if len(s.partial) == 0 && len(data) >= messageHeader {
			n, err := messageSize(data)
			if err != nil {
				return err
			}
			if len(data) >= messageHeader+n {
				s.handler.Message(at, data[messageHeader:messageHeader+n])
				data = data[messageHeader+n:]
				continue
			}
		}
		if missing := messageHeader - len(s.partial); missing > 0 {
			n := min(missing, len(data))
			s.partial = append(s.partial, data[:n]...)
			data = data[n:]
			if len(s.partial) < messageHeader {
				return nil
			}
		}
		n, err := messageSize(s.partial)
		if err != nil {
			return err
		}
		if s.parts != nil && n > 0 {
			s.left, s.partial = n, s.partial[:0]
			continue
		}
		if whole := messageHeader + n; cap(s.partial) < whole {
			grown := make([]byte, len(s.partial), whole)
			copy(grown, s.partial)
			s.partial = grown
		}
		take := min(messageHeader+n-len(s.partial), len(data))
		s.partial = append(s.partial, data[:take]...)
		data = data[take:]
		if len(s.partial) == messageHeader+n {
			s.handler.Message(at, s.partial[messageHeader:])
			s.partial = s.partial[:0]
		}
	}
	return nil
}

func messageSize(b []byte) (int, error) {
	if b[0] != 0 {
		return 0, fmt.Errorf("compressed message (flag %d) although none was asked for", b[0])
	}
	n := binary.BigEndian.Uint32(b[1:])
	if n > maxWindow {
		return 0, fmt.Errorf("message of %d bytes", n)
	}
	return int(n), nil
}

func appendMessageHeader(b []byte, n int) []byte {
	b = append(b, 0)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}
