package gate

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/streams"
	"vigil/internal/edge/rpc/transport"
)

// Session is a stream without a goroutine: what serveStream is to other streams. It counts messages
// and turns panics into the end of the stream. The service's side of the stream embeds it, so that
// an idle stream is few objects.
type Session struct {
	transport.Peer
	handler SessionHandler
	method  *method
	ctx     context.Context // of the peer, with credentials
	started time.Duration   // after epoch
	open    streams.Stream
	traced  func(error) // nil without a verbose log
}

// epoch is the time that Session.started counts from.
var epoch = time.Now()

// SessionHandler is the service's side of a stream. It embeds Session or PromptSession.
type SessionHandler interface {
	transport.Session
	// Begin is called once before the methods of transport.Session, which are not called if it
	// fails.
	Begin() error

	// Base and Outer are those of the Session or PromptSession that the handler embeds. Outer is
	// the session that the transport calls.
	Base() *Session
	Outer() transport.Session
}

// Base implements SessionHandler.
func (ss *Session) Base() *Session { return ss }

// Outer implements SessionHandler.
func (ss *Session) Outer() transport.Session { return ss }

// Context implements transport.Peer.
func (ss *Session) Context() context.Context { return ss.ctx }

// SendMsg implements transport.Peer.
func (ss *Session) SendMsg(m any) error {
	err := ss.Peer.SendMsg(m)
	if err == nil {
		ss.method.sent.Inc()
	}
	return err
}

// CountSent counts messages that were sent without SendMsg.
func (ss *Session) CountSent(messages, bytes int) {
	ss.method.sent.Add(float64(messages))
	ss.method.gate.o.Metrics.bytesSent.Add(float64(bytes))
}

// CountFailure counts a failure of the stream, by the operation and the API in which it happened.
func (ss *Session) CountFailure(op, api string) {
	ss.method.gate.o.Metrics.streamFailures.WithLabelValues(op, api).Inc()
}

// openSession begins a stream that is served by a session.
func (m *method) openSession(p transport.Peer) (_ transport.Session, err error) {
	g := m.gate
	m.started.Inc()
	handler := m.Session()
	ss := handler.Base()
	ss.Peer, ss.handler, ss.method, ss.started = p, handler, m, time.Since(epoch)
	if g.logAll {
		ss.traced = traced(p.Context(), m.fullName)
	}
	defer func() {
		if p := recover(); p != nil {
			err = transport.Recovered(g.o.Logger, m.fullName, p)
		}
		if err != nil {
			ss.noteEnd(err)
		}
	}()
	needsLeader, err := g.admit(p.Context(), g.o.Metrics.stream, m.ForLearner)
	if err != nil {
		return nil, err
	}
	ss.open = streams.Stream{Ender: p, NeedsLeader: needsLeader}
	if err := g.o.Streams.Add(&ss.open); err != nil {
		return nil, err
	}
	ss.ctx = g.withCredentials(p.Context())
	if err := g.authorize(ss.ctx, &m.rule, nil); err != nil {
		return nil, err
	}
	if err := handler.Begin(); err != nil {
		return nil, err
	}
	return handler.Outer(), nil
}

// noteEnd notes the end of the stream.
func (ss *Session) noteEnd(err error) {
	ss.method.gate.o.Streams.Remove(&ss.open)
	ss.method.countEnd(status.Code(err), (time.Since(epoch) - ss.started).Seconds())
	if ss.traced != nil {
		ss.traced(err)
	}
}

// endAfterPanic ends the stream if its handler panicked.
func (ss *Session) endAfterPanic() {
	if p := recover(); p != nil {
		ss.End(transport.Recovered(ss.method.gate.o.Logger, ss.method.fullName, p))
	}
}

// Receive implements transport.Session.
func (ss *Session) Receive(message any) {
	defer ss.endAfterPanic()
	ss.method.received.Inc()
	ss.handler.Receive(message)
}

// EndReceive implements transport.Session.
func (ss *Session) EndReceive() {
	defer ss.endAfterPanic()
	ss.handler.EndReceive()
}

// Fill implements transport.Session.
func (ss *Session) Fill(room int) {
	defer ss.endAfterPanic()
	ss.handler.Fill(room)
}

// Close implements transport.Session.
func (ss *Session) Close(reason error) {
	defer ss.endAfterPanic()
	defer func() { ss.noteEnd(reason) }()
	ss.handler.Close(reason)
}

// PromptSession is a Session that answers some messages without a wait.
type PromptSession struct{ Session }

// Outer implements SessionHandler.
func (ps *PromptSession) Outer() transport.Session { return ps }

// Answer implements transport.PromptSession.
func (ps *PromptSession) Answer(message, to []byte) (_ []byte, ok bool) {
	defer ps.endAfterPanic()
	if to, ok = ps.handler.(transport.PromptSession).Answer(message, to); ok {
		ps.method.received.Inc()
		ps.method.sent.Inc()
	}
	return to, ok
}
