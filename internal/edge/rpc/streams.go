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
		open    map[*stream]struct{}
		stopped bool
	}
}

// stream is an open stream.
type stream struct {
	cancel      context.CancelCauseFunc
	needsLeader bool
}

func newStreams() *streams {
	s := &streams{}
	s.mu.open = map[*stream]struct{}{}
	return s
}

// join adds a stream. The context it returns ends with the stream's own or when the server ends the
// stream, and then the reason is its cause. leave must be called when the stream is over.
func (s *streams) join(ctx context.Context, needsLeader bool) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	st := &stream{cancel, needsLeader}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped {
		cancel(nil)
		return nil, nil, rpctypes.ErrGRPCStopped
	}
	s.mu.open[st] = struct{}{}
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.open, st)
	}, nil
}

// leaderless ends the streams that need a leader.
func (s *streams) leaderless() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.open {
		if st.needsLeader {
			st.cancel(rpctypes.ErrGRPCNoLeader)
		}
	}
}

// end ends the streams that are open with a status.
func (s *streams) end(status error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.open {
		st.cancel(status)
	}
}

// stop ends all streams and rejects new ones.
func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopped = true
	for st := range s.mu.open {
		st.cancel(rpctypes.ErrGRPCStopped)
	}
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
