package h2

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
)

// Stream is one request and its answer. An Exchange has one. Its methods may be called
// concurrently, but a stream sends its messages one after another.
//
// A client may have very many streams that do nothing, so it is kept small.
type Stream struct {
	l *link
	x Exchange // that has the stream

	id       uint32
	headCost int32 // bytes that are charged until a handler runs, then 0; owned by the reader

	// ctx is the Stream as a context.
	ctx contextState

	// recv is how many bytes the client may send, extra how many the window was enlarged for long
	// messages, owed how many were taken and are not granted again yet.
	recv, extra, owed atomic.Int64
	// charged is the stream's part of link.unread.
	charged atomic.Int64

	// Owned by the reader.
	due int64 // bytes of the body that must follow by content-length; negative if unknown

	// Guarded by link.mu.
	state      streamState
	list       listKind // the scheduler's list that has the stream
	prev, next *Stream  // in that list
	out        sendQueue
	promise    promise
}

// ErrEnded is the error of sending on a stream that has ended. Its context has the reason.
var ErrEnded = errors.New("the stream has ended")

// ID returns the number of the stream.
func (s *Stream) ID() uint32 { return s.id }

// Hold notes that a handler uses the stream until Finish is called. It returns false if the stream
// does not exist any more; otherwise Finish must be called. Only the reader of the connection may
// call it.
func (s *Stream) Hold() bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.acceptHead() {
		return false
	}
	s.state.move(streamHold)
	return true
}

// Attend is Hold for an answer without a running handler, by Answer, AnswerLater, AnswerPrompt or
// FinishLater. A client may reset any number of such streams.
func (s *Stream) Attend() bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.acceptHead()
}

// acceptHead notes that somebody handles the request, and stops counting most of its header. It
// returns false if the stream does not exist any more. mu must be held.
func (s *Stream) acceptHead() bool {
	if s.state.gone() {
		return false
	}
	s.dischargeUnread(min(int64(s.headCost), streamCost+heldHead))
	s.headCost = 0
	return true
}

// Send queues a part of the answer, after header if header is not nil. It waits first while
// sendQuota bytes are queued. more says that another part follows at once and goes into the same
// write. The buffers belong to the connection from now on.
func (s *Stream) Send(header *Header, head [headSize]byte, data mem.BufferSlice, more bool) error {
	return s.queueMessage(header, message{head: head, nhead: headSize, data: data},
		headSize+data.Len(), sendQuota, more)
}

// SendBody is Send for a part of a body that has no messages. It waits while bodyQuota bytes are
// queued. A stream uses only one of the two.
func (s *Stream) SendBody(header *Header, data mem.BufferSlice, more bool) error {
	return s.queueMessage(header, message{data: data}, data.Len(), bodyQuota, more)
}

// queueMessage queues a message of n bytes.
func (s *Stream) queueMessage(header *Header, m message, n int, quota int32, more bool) error {
	l := s.l
	l.mu.Lock()
	s.out.quota = quota
	for s.out.isFull() && s.state.sends() {
		l.handOver()
		if s.out.room == nil {
			s.out.room = make(chan struct{}, 1)
		}
		room := s.out.room
		l.mu.Unlock()
		select {
		case <-room:
		case <-s.Done():
		}
		l.mu.Lock()
	}
	if !s.state.sends() {
		l.mu.Unlock()
		m.data.Free()
		return ErrEnded
	}
	much := m.data.Len() >= maxFrame
	s.out.addMessage(header, m, n)
	l.mu.out.schedule(s)
	switch {
	case more:
		l.mu.Unlock()
	case much:
		// A worker writes: a handler that sends much must end with its stream, even while a write
		// waits for the client.
		l.handOver()
		l.mu.Unlock()
	default:
		l.writeOrWait()
	}
	return nil
}

// SendHeader queues the header of an answer that has no message yet. Finish, or Send without a
// header, must follow soon.
func (s *Stream) SendHeader(header *Header) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.state.sends() {
		return
	}
	s.out.header, s.out.begun = header, true
	s.l.mu.out.schedule(s)
}

// Finish ends the answer with trailer, or with whole, header and trailer in one, if nothing was
// sent before. A nil trailer means an empty frame. Finish ends the context. It may be called during
// Send. If the client has not ended its body, the stream is reset with NO_ERROR after the trailer.
// Finish returns false if the answer had ended already.
func (s *Stream) Finish(trailer, whole *Header) bool {
	s.l.mu.Lock()
	if !s.finishAnswer(trailer, whole) {
		s.l.mu.Unlock()
		return false
	}
	s.endContext(byCancel) // under mu: Serve may return as soon as the last answer is written
	s.l.writeOrWait()
	return true
}

// FinishSoon is Finish without waiting for the client: a worker writes.
func (s *Stream) FinishSoon(trailer, whole *Header) bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.finishAnswer(trailer, whole) {
		return false
	}
	s.endContext(byCancel)
	s.l.handOver()
	return true
}

// Reject is Finish for the reader of the connection: a worker writes. If header is not nil, header
// and text precede the trailer.
func (s *Stream) Reject(header *Header, text []byte, trailer *Header) {
	l := s.l
	l.mu.Lock()
	if header != nil && s.state.sends() {
		s.out.addMessage(header, message{data: mem.BufferSlice{mem.SliceBuffer(text)}}, len(text))
	}
	if s.finishAnswer(trailer, trailer) {
		l.handOver()
	}
	l.mu.Unlock()
	s.endContext(byCancel)
}

// Answer is Send and Finish in one, without waiting for room. It returns false if the answer had
// ended already.
func (s *Stream) Answer(header *Header, head [headSize]byte, data mem.BufferSlice,
	trailer *Header) bool {
	s.l.mu.Lock()
	if !s.addAnswer(header, message{head: head, nhead: headSize, data: data},
		headSize+data.Len(), trailer) {
		s.l.mu.Unlock()
		data.Free()
		return false
	}
	s.endContext(byCancel)
	s.l.writeOrWait()
	return true
}

// addAnswer queues a whole answer with one message of n bytes. It returns false if the answer had
// ended already. mu must be held.
func (s *Stream) addAnswer(header *Header, m message, n int, trailer *Header) bool {
	if s.state.sends() {
		s.out.addMessage(header, m, n)
	}
	return s.finishAnswer(trailer, trailer)
}

// finishAnswer notes that the answer and its handler end, with trailer, or with whole if nothing
// was sent before. It returns false if the answer had ended already. mu must be held.
func (s *Stream) finishAnswer(trailer, whole *Header) bool {
	before := s.state.move(streamFinish)
	if before == streamAbandoned {
		s.l.mu.table.abandoned--
		s.l.mu.changed.Broadcast()
	}
	if !before.sends() {
		return false
	}
	s.endAnswer(trailer, whole)
	return true
}

// endAnswer queues the end of the answer. mu must be held.
func (s *Stream) endAnswer(trailer, whole *Header) {
	if !s.out.begun {
		trailer = whole
	}
	s.out.trailer = trailer
	// no handler waits for it any more
	s.chargeUnread(streamCost + int64(min(s.out.bytes, sendQuota)))
	s.l.mu.out.schedule(s)
}

// Reset ends the stream with an error code. It does nothing if the stream has ended.
func (s *Stream) Reset(code http2.ErrCode) { s.resetFor(code, byCancel) }

func (s *Stream) resetFor(code http2.ErrCode, how ending) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.state.gone() {
		return
	}
	l.resetStream(s, code, s.state.bodyEnded())
	s.endContext(how) // under mu: Serve may return when mu is free
	l.handOver()      // the reader may be the caller
}

// expire ends a stream at its deadline. If no message waits to be sent, the answer ends with the
// trailer for that, because some clients take a reset for a cancellation. Otherwise the stream is
// reset.
func (s *Stream) expire() {
	l, late := s.l, s.ctx.late
	l.mu.Lock()
	if late == nil || !s.state.sends() || s.out.bytes > 0 {
		l.mu.Unlock()
		s.resetFor(http2.ErrCodeCancel, byDeadline)
		return
	}
	defer l.mu.Unlock()
	s.state.move(streamExpire)
	s.endAnswer(late())
	s.endContext(byDeadline)
	l.handOver()
}

// Deadline implements context.Context.
func (s *Stream) Deadline() (time.Time, bool) {
	if s.ctx.deadline == 0 {
		return time.Time{}, false
	}
	return epoch.Add(s.ctx.deadline), true
}

// Done implements context.Context.
func (s *Stream) Done() <-chan struct{} { return s.ctx.doneChannel() }

// Err implements context.Context.
func (s *Stream) Err() error { return s.ctx.err() }

// Value implements context.Context.
func (s *Stream) Value(key any) any { return s.l.values.Value(key) }

// AfterFunc runs f in its own goroutine after the end. Package context uses it, so contexts that
// are derived from a Stream need no goroutine.
func (s *Stream) AfterFunc(f func()) (stop func() bool) { return s.ctx.runAfter(f) }

// SetDeadline ends the stream after d: as Finish does with the headers that late returns, or by a
// reset if late is nil or messages wait to be sent. Only Start may call it.
func (s *Stream) SetDeadline(d time.Duration, late func() (trailer, whole *Header)) {
	s.ctx.setDeadline(d, late, s.expire)
}

// endContext ends the context, and notifies the exchange. Only the first call has an effect. free
// reports that nobody who was notified of the end will use the context any more. link.mu may be
// held.
func (s *Stream) endContext(how ending) (free bool) {
	free, notify := s.ctx.endOnce(how)
	if notify {
		s.l.o.Workers.Run(s.x.(Filler).Ended)
	}
	return free
}

var _ context.Context = (*Stream)(nil)
