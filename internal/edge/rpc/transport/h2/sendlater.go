package h2

import (
	"bytes"

	"google.golang.org/grpc/mem"
)

// The methods in this file neither write nor wait. The reader writes their output before it reads
// again, or a call of Conn.Flush does.

// AnswerLater is Answer without the write.
func (s *Stream) AnswerLater(header *Header, head [headSize]byte, data mem.BufferSlice,
	trailer *Header) bool {
	l := s.l
	l.mu.Lock()
	much := data.Len() >= maxFrame
	if !s.addAnswer(header, message{head: head, nhead: headSize, data: data},
		headSize+data.Len(), trailer) {
		l.mu.Unlock()
		data.Free()
		return false
	}
	if much {
		l.handOver() // so that only small answers wait for a write
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

// SendSoon is Send for a message that is copied; m includes its head. A small message becomes a
// frame at once, as in AnswerPrompt. behind reports that the message waits behind others, or for a
// window: then the caller must not send many more messages this way.
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

// copiedMessage copies a message that includes its head.
func copiedMessage(m []byte) message {
	return message{head: [headSize]byte(m), nhead: headSize,
		data: mem.BufferSlice{mem.SliceBuffer(bytes.Clone(m[headSize:]))}}
}

// AnswerPrompt is AnswerLater for a message that is copied; m includes its head. A small answer
// becomes frames at once if it can be sent next: it needs no queue, and the stream ends here. free
// reports that the package does not refer to the stream any more: the caller may use it for another
// request if he keeps no reference himself.
func (s *Stream) AnswerPrompt(header *Header, m []byte, trailer *Header) (free bool) {
	l := s.l
	l.mu.Lock()
	out := &l.mu.out
	if !s.state.sends() || s.out.begun || out.tooLarge(header) || out.tooLarge(trailer) ||
		!l.makePromptRoom(s, len(m)) {
		ok := s.addAnswer(header, copiedMessage(m), len(m), trailer)
		l.mu.Unlock()
		if ok {
			s.endContext(byCancel)
		}
		return false
	}
	out.addPromptAnswer(s, header, m, trailer)
	// The reader still uses a stream whose body has not ended, and promises may list the stream.
	free = s.state.bodyEnded() && !s.promise.waiting
	s.state.move(streamFinish)
	l.removeStream(s, s.state.bodyEnded())
	l.mu.Unlock()
	return s.endContext(byCancel) && free
}

// makePromptRoom calls scheduler.makePromptRoom unless the connection fails or ends. Then
// takeStreams may have taken the stream for dropStreams, which would end another request if
// AnswerPrompt reported that the stream is free. mu must be held.
func (l *link) makePromptRoom(s *Stream, n int) bool {
	return l.mu.state.queues() && l.mu.out.makePromptRoom(s, n)
}

// Notify makes the package call the exchange, which must be a Filler. costly says that a call of
// Fill may take long. Only the reader of the connection may call Notify, after Hold.
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

// Queue queues a part of the answer, after header if header is not nil. Only Fill may call it. The
// buffers belong to the connection from now on. If room is false, Fill is called again when there
// is room.
func (s *Stream) Queue(header *Header, data mem.BufferSlice) (room bool, err error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if !s.state.sends() {
		data.Free()
		return false, ErrEnded
	}
	return s.l.mu.out.addFilled(s, header, message{data: data}, data.Len()), nil
}
