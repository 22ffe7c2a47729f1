package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/transport"
)

// session is a stream without a goroutine: what serveStream is to other streams. It counts messages, and turns panics into the
// end of the stream.
type session struct {
	transport.Peer
	inner   transport.Session
	svc     *service
	m       *method
	ctx     context.Context // of the peer, with credentials
	started time.Time
	leave   func()
	traced  func(error) // nil without a verbose log
}

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
	ss := &session{Peer: p, svc: s.svc, m: m, started: time.Now(), leave: func() {}}
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
	if ss.leave, err = s.svc.streams.joinSession(p, needsLeader); err != nil {
		ss.leave = func() {}
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
	if ss.inner, err = m.session(ss); err != nil {
		return nil, err
	}
	if p, ok := ss.inner.(transport.PromptSession); ok {
		return &promptSession{ss, p}, nil
	}
	return ss, nil
}

// promptSession is a session that answers some messages without a wait.
type promptSession struct {
	*session
	prompt transport.PromptSession
}

// Answer implements transport.PromptSession.
func (ps *promptSession) Answer(message any) (answer any, ok bool) {
	defer ps.recovered()
	if answer, ok = ps.prompt.Answer(message); ok {
		ps.m.received.Inc()
		ps.m.sent.Inc()
	}
	return answer, ok
}

// finish notes the end of the stream.
func (ss *session) finish(err error) {
	ss.leave()
	ss.m.ended(status.Code(err), time.Since(ss.started).Seconds())
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
