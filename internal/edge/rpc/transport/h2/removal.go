package h2

import (
	"runtime"

	"golang.org/x/net/http2"
)

// dropAtOnce is how many streams are removed before the lock of the connection is released for a
// moment. A connection may have very many streams, and goroutines that work for all clients take
// its lock.
const dropAtOnce = 64

// takeStreams takes all streams out of the table. dropStreams must follow. mu must be held.
func (l *link) takeStreams() map[uint32]*Stream {
	l.mu.dropping++
	return l.mu.table.takeStreams()
}

// dropStreams removes streams and ends their contexts. It notifies exchanges one after another: a
// goroutine for each would keep others from running.
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
			runtime.Gosched() // otherwise goroutines that wait would rarely get the lock
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

// removeStream removes a stream and everything that it has queued. byClient says that the client
// has ended it and must not send any more. mu must be held.
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

// resetStream resets a stream. For byClient see removeStream. mu must be held. The caller hands the
// output over and ends the context.
func (l *link) resetStream(s *Stream, code http2.ErrCode, byClient bool) {
	// The reset comes first: removing the last stream of a draining connection ends it if nothing
	// is left to write.
	if l.mu.state.queues() {
		l.mu.out.addReset(s.id, code)
	}
	l.removeStream(s, byClient)
}

// givePromises lets clients send the rest of as many long messages as there is memory for. mu must
// be held.
func (l *link) givePromises() {
	for s, n := l.mu.promises.giveNext(); s != nil; s, n = l.mu.promises.giveNext() {
		s.extra.Add(n)
		l.grantWindow(s, n)
	}
}

// grantWindow allows the client to send n more bytes on a stream. mu must be held.
func (l *link) grantWindow(s *Stream, n int64) {
	if s.state.gone() || s.state.bodyEnded() || !l.mu.state.queues() {
		return
	}
	s.recv.Add(n)
	l.mu.out.control = appendWindowUpdate(l.mu.out.control, s.id, uint32(n))
	l.handOver()
}
