package h2

import (
	"errors"
	"sync/atomic"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
)

// Stream is one request and its answer. A user embeds it in its Exchange. Its methods may be called concurrently, but answers
// of one stream are sent one after another.
//
// A client may have very many streams that do nothing: it is kept small. What every message needs is close together.
type Stream struct {
	c *Conn
	x Exchange // that embeds the stream

	id       uint32
	headCost int32 // what is charged until a handler runs; 0 from then on; owned by the reader

	// ctx is the Stream as a context.
	ctx contextState

	// recv is how many bytes the client may send, extra how many were granted beyond the window for long messages, owed how
	// many were taken and not granted again.
	recv, extra, owed atomic.Int64
	// charged is the stream's part of the unread bytes of the connection.
	charged atomic.Int64

	// Owned by the reader.
	due int64 // bytes of the body that follow by content-length; negative if unknown

	// Guarded by c.mu.
	expected    bool // the stream has waited for a promise
	clientEnded bool // the body is complete
	finished    bool // Finish was called, or the deadline has passed: nothing more is sent
	expired     bool // the latter
	closed      bool // the stream does not exist any more
	held        bool // a handler uses it
	out         struct {
		window  int64 // how many bytes may be sent
		header  *Header
		bytes   int // in queue
		queue   []message
		first   [1]message // room for a queue of one
		trailer *Header
		room    chan struct{} // receives when there is room for more; nil if no sender waits
		prev    *Stream       // in the list
		next    *Stream
		listed  bool // in a list: that of stalled streams, or of ready ones
		stalled bool
		begun   bool // a header was queued
		filling bool // in Conn.mu.fills
		full    bool // Queue has reported that there is no room
		little  bool // a sender waits beyond bodyQuota, not sendQuota
	}
	promised int64 // the stream's part of the promised bytes of the connection
	expects  int64 // how many more bytes of a long message wait to be promised, 0 if the stream does not wait
}

// message is a part of a body: a few bytes, and buffers.
type message struct {
	head  [headSize]byte
	nhead uint8 // bytes of the head that were not sent
	data  mem.BufferSlice
	off   int // bytes of the first buffer that were sent
}

// headSize is the largest number of bytes in front of the buffers of one Send.
const headSize = 5

// sendQuota is how many bytes of a stream may be queued. A sender waits while there are more.
const sendQuota = 64 << 10

// bodyQuota is the same for bodies without messages: the next part is queued when the one before is on its way.
const bodyQuota = 1

func (s *Stream) quota() int {
	if s.out.little {
		return bodyQuota
	}
	return sendQuota
}

// ErrEnded is the error of sending on a stream that has ended, for which its context has a reason.
var ErrEnded = errors.New("the stream has ended")

// ID returns the number of the stream.
func (s *Stream) ID() uint32 { return s.id }

// Hold notes that a handler uses the stream until Finish is called, and reports whether the stream still exists. Finish must
// be called if it does. The reader of the connection calls it.
func (s *Stream) Hold() bool {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed {
		return false
	}
	s.held = true
	s.discharge(min(int64(s.headCost), streamCost+heldHead))
	s.headCost = 0
	return true
}

// Attend is Hold for an answer that comes without a handler that runs until then: by Answer, AnswerLater or FinishLater. The
// client may reset any number of such streams.
func (s *Stream) Attend() bool {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed {
		return false
	}
	s.discharge(min(int64(s.headCost), streamCost+heldHead))
	s.headCost = 0
	return true
}

// Send queues a part of the answer, after header if that is not nil, and waits while the client does not take what was
// queued before. more says that another part follows at once, which goes into the same write. The buffers belong to the
// connection from now on.
func (s *Stream) Send(header *Header, head [headSize]byte, data mem.BufferSlice, more bool) error {
	return s.send(header, message{head: head, nhead: headSize, data: data}, headSize+data.Len(), false, more)
}

// SendBody is Send for a part of a body that has no messages. It waits while bodyQuota is queued. A stream uses one of the two.
func (s *Stream) SendBody(header *Header, data mem.BufferSlice, more bool) error {
	return s.send(header, message{data: data}, data.Len(), true, more)
}

// send queues a message of n bytes.
func (s *Stream) send(header *Header, m message, n int, little, more bool) error {
	c := s.c
	c.mu.Lock()
	s.out.little = little
	for s.out.bytes >= s.quota() && !s.closed && !s.finished {
		c.handOver()
		if s.out.room == nil {
			s.out.room = make(chan struct{}, 1)
		}
		room := s.out.room
		c.mu.Unlock()
		select {
		case <-room:
		case <-s.Done():
		}
		c.mu.Lock()
	}
	if s.closed || s.finished {
		c.mu.Unlock()
		m.data.Free()
		return ErrEnded
	}
	much := m.data.Len() >= maxFrame
	s.enqueue(header, m, n)
	c.ready(s)
	switch {
	case more:
		c.mu.Unlock()
	case much:
		// A handler that sends much must end with its stream, also if the client does not read and a write waits.
		c.handOver()
		c.mu.Unlock()
	default:
		c.startWriter()
	}
	return nil
}

// SendHeader queues the header of an answer that has no message yet. Finish must follow soon, or Send without a header.
func (s *Stream) SendHeader(header *Header) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.closed || s.finished {
		return
	}
	s.out.header, s.out.begun = header, true
	s.c.ready(s)
}

// enqueue adds a message of n bytes. c.mu is held.
func (s *Stream) enqueue(header *Header, m message, n int) {
	if header != nil {
		s.out.header, s.out.begun = header, true
	}
	if s.out.queue == nil {
		s.out.queue = s.out.first[:0]
	}
	s.out.queue = append(s.out.queue, m)
	s.out.bytes += n
}

// Finish ends the answer with a trailer, or with whole, which is the header too, if nothing was sent before: it may be called
// during Send. Without a trailer an empty frame is the end. It ends the context. If the client has not ended its body, the stream is reset without an error after the
// trailer. It reports whether the stream still existed.
func (s *Stream) Finish(trailer, whole *Header) bool {
	c := s.c
	c.mu.Lock()
	if !s.out.begun {
		trailer = whole
	}
	if !s.finishLocked(trailer) {
		c.mu.Unlock()
		return false
	}
	s.endContext(byCancel) // while the stream is known: Serve may return as soon as the last answer is written
	c.startWriter()
	return true
}

// Reject is Finish for the reader of the connection, which does not write. If header is not nil, it and text precede the
// trailer.
func (s *Stream) Reject(header *Header, text []byte, trailer *Header) {
	c := s.c
	c.mu.Lock()
	if header != nil && !s.closed && !s.finished {
		s.out.header = header
		s.out.queue = append(s.out.first[:0], message{data: mem.BufferSlice{mem.SliceBuffer(text)}})
		s.out.bytes = len(text)
	}
	if s.finishLocked(trailer) {
		c.handOver()
	}
	c.mu.Unlock()
	s.endContext(byCancel)
}

// Answer is Send and Finish at once, without waiting.
func (s *Stream) Answer(header *Header, head [headSize]byte, data mem.BufferSlice, trailer *Header) bool {
	c := s.c
	c.mu.Lock()
	if s.closed || s.finished {
		s.finishLocked(trailer)
		c.mu.Unlock()
		data.Free()
		return false
	}
	s.enqueue(header, message{head: head, nhead: headSize, data: data}, headSize+data.Len())
	s.finishLocked(trailer)
	s.endContext(byCancel)
	c.startWriter()
	return true
}

// finishLocked notes the end of the answer. c.mu is held.
func (s *Stream) finishLocked(trailer *Header) bool {
	if s.closed {
		s.release()
		return false
	}
	if s.finished {
		if s.expired {
			s.held = false // its handler has ended before the trailer was written
		}
		return false
	}
	s.finished = true
	s.out.trailer = trailer
	s.charge(streamCost + int64(min(s.out.bytes, sendQuota))) // no handler waits for it any more
	s.c.ready(s)
	return true
}

// release notes that no handler uses a closed stream any more. c.mu is held.
func (s *Stream) release() {
	if s.held {
		s.held = false
		s.c.mu.abandoned--
		s.c.mu.changed.Broadcast()
	}
}

// Reset ends the stream with an error code. It does nothing if the stream has ended.
func (s *Stream) Reset(code http2.ErrCode) { s.reset(code, byCancel) }

// expire ends a stream whose deadline has passed. If nothing waits to be sent, the answer ends with the trailer for that: some clients
// take a reset for a cancellation. The handler counts as abandoned until it has ended.
func (s *Stream) expire() {
	c, late := s.c, s.ctx.late
	c.mu.Lock()
	if late == nil || s.closed || s.finished || s.out.bytes > 0 {
		c.mu.Unlock()
		s.reset(http2.ErrCodeCancel, byDeadline)
		return
	}
	trailer, whole := late()
	if !s.out.begun {
		trailer = whole
	}
	s.finishLocked(trailer)
	s.expired = true
	s.endContext(byDeadline)
	c.handOver()
	c.mu.Unlock()
}

func (s *Stream) reset(code http2.ErrCode, how ending) {
	c := s.c
	c.mu.Lock()
	if s.closed {
		c.mu.Unlock()
		return
	}
	c.resetLocked(s, code)
	s.endContext(how) // Serve may return when c.mu is free
	c.handOver()      // the reader may be the caller
	c.mu.Unlock()
}
