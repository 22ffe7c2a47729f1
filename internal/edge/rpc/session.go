package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/streams"
	"vigil/internal/edge/rpc/transport"
)

// session is a stream without a goroutine: what serveStream is to other streams. It counts messages, and turns panics into the
// end of the stream. The service's side of the stream embeds it, so that an idle stream is few objects.
type session struct {
	transport.Peer
	inner   served
	svc     *service
	m       *method
	ctx     context.Context // of the peer, with credentials
	started time.Duration   // after epoch
	open    streams.Stream
	traced  func(error) // nil without a verbose log
}

// epoch is the time that session.started counts from.
var epoch = time.Now()

// served is the service's side of a stream, which embeds its session.
type served interface {
	transport.Session
	// common returns the session, outer what the transport calls: the session or what embeds that.
	common() *session
	outer() transport.Session
	// begin is called once before the methods of transport.Session, which are not called if it fails.
	begin() error
}

func (ss *session) common() *session         { return ss }
func (ss *session) outer() transport.Session { return ss }

// Context implements transport.Peer.
func (ss *session) Context() context.Context { return ss.ctx }

// SendMsg implements transport.Peer.
func (ss *session) SendMsg(m any) error {
	err := ss.Peer.SendMsg(m)
	if err == nil {
		ss.m.sent.Inc()
	}
	return err
}

// openSession begins a stream that is served by a session.
func (s *Server) openSession(m *method, p transport.Peer) (_ transport.Session, err error) {
	m.started.Inc()
	inner := m.session()
	ss := inner.common()
	ss.Peer, ss.inner, ss.svc, ss.m, ss.started = p, inner, s.svc, m, time.Since(epoch)
	if s.svc.logAll {
		ss.traced = traced(p.Context(), m.fullName)
	}
	defer func() {
		if p := recover(); p != nil {
			err = transport.Recovered(s.svc.log, m.fullName, p)
		}
		if err != nil {
			ss.finish(err)
		}
	}()
	needsLeader, err := s.svc.admit(p.Context(), s.svc.cfg.Metrics.stream, m.forLearner)
	if err != nil {
		return nil, err
	}
	ss.open = streams.Stream{Ender: p, NeedsLeader: needsLeader}
	if err := s.svc.streams.Add(&ss.open); err != nil {
		return nil, err
	}
	ss.ctx = p.Context()
	if s.svc.cfg.Auth != nil {
		// Auth may be enabled before the stream ends.
		ss.ctx = s.svc.withCredentials(ss.ctx)
	}
	if err := s.svc.authorize(ss.ctx, &m.rule, nil); err != nil {
		return nil, err
	}
	if err := inner.begin(); err != nil {
		return nil, err
	}
	return inner.outer(), nil
}

// promptSession is a session that answers some messages without a wait.
type promptSession struct{ session }

func (ps *promptSession) outer() transport.Session { return ps }

// Answer implements transport.PromptSession.
func (ps *promptSession) Answer(message, to []byte) (_ []byte, ok bool) {
	defer ps.recovered()
	if to, ok = ps.inner.(transport.PromptSession).Answer(message, to); ok {
		ps.m.received.Inc()
		ps.m.sent.Inc()
	}
	return to, ok
}

// finish notes the end of the stream.
func (ss *session) finish(err error) {
	ss.svc.streams.Remove(&ss.open)
	ss.m.ended(status.Code(err), (time.Since(epoch) - ss.started).Seconds())
	if ss.traced != nil {
		ss.traced(err)
	}
}

// recovered ends the stream after a panic.
func (ss *session) recovered() {
	if p := recover(); p != nil {
		ss.End(transport.Recovered(ss.svc.log, ss.m.fullName, p))
	}
}

// Receive implements transport.Session.
func (ss *session) Receive(message any) {
	defer ss.recovered()
	ss.m.received.Inc()
	ss.inner.Receive(message)
}

// EndReceive implements transport.Session.
func (ss *session) EndReceive() {
	defer ss.recovered()
	ss.inner.EndReceive()
}

// Fill implements transport.Session.
func (ss *session) Fill(room int) {
	defer ss.recovered()
	ss.inner.Fill(room)
}

// Close implements transport.Session.
func (ss *session) Close(reason error) {
	defer ss.recovered()
	defer func() { ss.finish(reason) }()
	ss.inner.Close(reason)
}
