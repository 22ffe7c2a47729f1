package rpc

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// streams tracks the open streams, so that the server can end them: those whose clients require a leader after a long time
// without one, and all of them when it stops.
type streams struct {
	mu struct {
		sync.Mutex
		first   *stream
		stopped bool
	}
}

// stream is an open stream, in a list of all: there may be very many.
type stream struct {
	ender
	needsLeader bool
	listed      bool
	prev, next  *stream
}

// ender ends a stream with a status. It does not wait.
type ender interface{ End(error) }

// canceler ends a stream by the cause of its context.
type canceler context.CancelCauseFunc

// End implements ender.
func (c canceler) End(err error) { c(err) }

func newStreams() *streams { return &streams{} }

// join adds a stream. The context it returns ends with the stream's own or when the server ends the
// stream, and then the reason is its cause. leave must be called when the stream is over.
func (s *streams) join(ctx context.Context, needsLeader bool) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	st := &stream{ender: canceler(cancel), needsLeader: needsLeader}
	if err := s.add(st); err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() {
		cancel(nil)
		s.remove(st)
	}, nil
}

// add adds a stream, unless the server has stopped. remove must be called when it is over.
func (s *streams) add(st *stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped {
		return rpctypes.ErrGRPCStopped
	}
	st.listed, st.next = true, s.mu.first
	if st.next != nil {
		st.next.prev = st
	}
	s.mu.first = st
	return nil
}

// remove removes a stream, if it was added.
func (s *streams) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.listed {
		return
	}
	if st.prev != nil {
		st.prev.next = st.next
	} else {
		s.mu.first = st.next
	}
	if st.next != nil {
		st.next.prev = st.prev
	}
	st.listed, st.prev, st.next = false, nil, nil
}

// endAll ends the streams, or those that need a leader. mu is held.
func (s *streams) endAll(status error, needLeader bool) {
	for st := s.mu.first; st != nil; st = st.next {
		if st.needsLeader || !needLeader {
			st.End(status)
		}
	}
}

// leaderless ends the streams that need a leader.
func (s *streams) leaderless() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endAll(rpctypes.ErrGRPCNoLeader, true)
}

// end ends the streams that are open with a status.
func (s *streams) end(status error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endAll(status, false)
}

// stop ends all streams and rejects new ones.
func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopped = true
	s.endAll(rpctypes.ErrGRPCStopped, false)
}

// patience is the number of election timeouts without a leader after which streams that need one are ended. New calls are
// rejected at once, but opening a stream again costs much more.
const patience = 3

// watchLeader looks for a leader ten times in an election timeout until stop is closed, and updates the health
// services each time.
func (s *service) watchLeader(stop <-chan struct{}, update func()) {
	tick := time.NewTicker(max(s.cfg.ElectionTimeout/10, time.Millisecond))
	defer tick.Stop()
	has := s.cfg.Member.Leader() != 0
	lost := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		if now := s.cfg.Member.Leader() != 0; now != has {
			has, lost = now, time.Now()
		}
		update()
		if !has && time.Since(lost) >= patience*s.cfg.ElectionTimeout {
			s.streams.leaderless()
		}
	}
}
