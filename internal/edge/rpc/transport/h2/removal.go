package h2

import (
	"runtime"

	"golang.org/x/net/http2"
)

// dropAtOnce is how many streams are removed before the lock of the connection is released for a moment. Goroutines that work for all
// clients take it, and a connection may have very many streams.
const dropAtOnce = 64

// takeStreams takes all streams, for dropStreams, which must follow. mu is held.
func (l *link) takeStreams() map[uint32]*Stream {
	l.mu.dropping++
	return l.mu.table.takeStreams()
}

// dropStreams removes streams, and ends their contexts. Exchanges are notified one after the other: a goroutine for each would keep
// others from running.
func (l *link) dropStreams(taken map[uint32]*Stream) {
	var notified []*Stream
	n := 0
	l.mu.Lock()
	for _, s := range taken {
		l.removeStream(s, s.state.bodyEnded())
		if _, notify := s.ctx.endOnce(byCancel); notify {
			notified = append(notified, s)
		}
		if n++; n%dropAtOnce == 0 {
			l.mu.Unlock()
			runtime.Gosched() // or those who wait would rarely get the lock before it is taken again
			l.mu.Lock()
		}
	}
	l.mu.dropping--
	l.mu.changed.Broadcast()
	l.mu.Unlock()
	if len(notified) > 0 {
		l.o.Workers.Run(func() {
			for _, s := range notified {
				s.x.(Filler).Ended()
			}
		})
	}
}

// removeStream removes a stream, with what it has queued. byClient says that the client has ended it, and must not send any more. mu is
// held.
func (l *link) removeStream(s *Stream, byClient bool) {
	if s.state.gone() {
		return
	}
	if s.state.move(streamRemove); s.state == streamAbandoned {
		l.mu.table.abandoned++
	}
	l.mu.table.removeStream(s.id, byClient)
	l.mu.out.unschedule(s)
	s.dischargeUnread(s.charged.Load())
	l.mu.promises.dropStream(s)
	l.givePromises()
	l.mu.inUse = append(l.mu.inUse, s.out.discardMessages(l.mu.writing)...)
	s.out.wakeSender()
	if !l.mu.writing && l.finishOutput() {
		l.o.Workers.Run(l.endOutput)
	}
}

// resetStream resets a stream; byClient is that of remove. mu is held; the caller hands the output over and ends the context.
func (l *link) resetStream(s *Stream, code http2.ErrCode, byClient bool) {
	// First, since the removal of the last stream ends a connection that drains when nothing is left to write.
	if l.mu.state.queues() {
		l.mu.out.addReset(s.id, code)
	}
	l.removeStream(s, byClient)
}

// givePromises lets clients send the rest of long messages, as many as there is memory for. mu is held.
func (l *link) givePromises() {
	for s, n := l.mu.promises.giveNext(); s != nil; s, n = l.mu.promises.giveNext() {
		s.extra.Add(n)
		l.grantWindow(s, n)
	}
}

// grantWindow allows the client to send n more bytes on a stream. mu is held.
func (l *link) grantWindow(s *Stream, n int64) {
	if s.state.gone() || s.state.bodyEnded() || !l.mu.state.queues() {
		return
	}
	s.recv.Add(n)
	l.mu.out.control = appendWindowUpdate(l.mu.out.control, s.id, uint32(n))
	l.handOver()
}
