package h2

import (
	"bytes"

	"google.golang.org/grpc/mem"
)

// The methods in this file do not write and do not wait: the reader writes before it reads again, or a call of Conn.Flush does.

// AnswerLater is Answer without the write.
func (s *Stream) AnswerLater(header *Header, head [headSize]byte, data mem.BufferSlice, trailer *Header) bool {
	l := s.l
	l.mu.Lock()
	much := data.Len() >= maxFrame
	if !s.addAnswer(header, message{head: head, nhead: headSize, data: data}, headSize+data.Len(), trailer) {
		l.mu.Unlock()
		data.Free()
		return false
	}
	if much {
		l.handOver() // so that the answers that wait for a write are small
	}
	l.mu.Unlock()
	s.endContext(byCancel)
	return true
}

// FinishLater is Finish without the write.
func (s *Stream) FinishLater(trailer, whole *Header) bool {
	s.l.mu.Lock()
	ok := s.finishAnswer(trailer, whole)
	s.l.mu.Unlock()
	if ok {
		s.endContext(byCancel)
	}
	return ok
}

// SendSoon is Send for a message, with the bytes in front of it, that is copied. A small message becomes a frame at once, as in
// AnswerPrompt. SendSoon reports whether the message is behind others, or waits for a window: then the caller must not send many more this
// way.
func (s *Stream) SendSoon(header *Header, m []byte) (behind bool) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.state.sends() {
		return false
	}
	if header != nil || s.out.header != nil || s.out.bytes > 0 || !l.makePromptRoom(s, len(m)) {
		s.out.addMessage(header, copiedMessage(m), len(m))
		l.mu.out.schedule(s)
		return true
	}
	*l.mu.out.prompt = l.mu.out.addPromptMessage(*l.mu.out.prompt, s, m)
	return false
}

// copiedMessage copies a message with the bytes in front of it.
func copiedMessage(m []byte) message {
	return message{head: [headSize]byte(m), nhead: headSize, data: mem.BufferSlice{mem.SliceBuffer(bytes.Clone(m[headSize:]))}}
}

// AnswerPrompt is AnswerLater for a message, with the bytes in front of it, that is copied. A small answer becomes frames at once, if
// nothing keeps it from being sent next: it needs no queue, and the stream ends here. free reports that nothing refers to the stream
// any more but what the caller of AnswerPrompt and its user have kept: then it may be used for another request.
func (s *Stream) AnswerPrompt(header *Header, m []byte, trailer *Header) (free bool) {
	l := s.l
	l.mu.Lock()
	out := &l.mu.out
	if !s.state.sends() || s.out.begun || out.tooLarge(header) || out.tooLarge(trailer) || !l.makePromptRoom(s, len(m)) {
		ok := s.addAnswer(header, copiedMessage(m), len(m), trailer)
		l.mu.Unlock()
		if ok {
			s.endContext(byCancel)
		}
		return false
	}
	out.addPromptAnswer(s, header, m, trailer)
	// A stream whose body has not ended is still read, and promises may refer to one.
	free = s.state.bodyEnded() && !s.promise.waiting
	s.state.move(streamFinish)
	l.removeStream(s, s.state.bodyEnded())
	l.mu.Unlock()
	return s.endContext(byCancel) && free
}

// makePromptRoom makes room for a message that becomes a frame at once. It returns false if the message must queue up. mu is held.
func (l *link) makePromptRoom(s *Stream, n int) bool {
	return l.mu.state.writes() && l.mu.out.makePromptRoom(s, n)
}

// Notify lets the exchange be notified, which must be a Filler. costly says that its Fill takes much time. The reader of the
// connection calls it, after Hold.
func (s *Stream) Notify(costly bool) {
	if costly {
		s.l.mu.Lock()
		s.l.mu.costly = true
		s.l.mu.Unlock()
	}
	if !s.ctx.wantNotification() {
		s.l.o.Workers.Run(s.x.(Filler).Ended)
	}
}

// Wake is WakeAll for one stream.
func (s *Stream) Wake() { WakeAll([]*Stream{s}) }

// Queue queues a part of the answer, after header if that is not nil. Only Fill may call it. The buffers belong to the connection
// from now on. If there is no room for more, Fill is called again when there is.
func (s *Stream) Queue(header *Header, data mem.BufferSlice) (room bool, err error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.state.sends() {
		data.Free()
		return false, ErrEnded
	}
	return s.l.mu.out.addFilled(s, header, message{data: data}, data.Len()), nil
}
