package rpc

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/internal/edge/rpc/transport"
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
	end         func(error) // does not wait
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
	if err := s.add(st); err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() {
		cancel(nil)
		s.remove(st)
	}, nil
}

// joinSession adds a stream that the server ends by a call of End. leave must be called when the stream is over.
func (s *streams) joinSession(p transport.Peer, needsLeader bool) (leave func(), err error) {
	st := &stream{p.End, needsLeader}
	return func() { s.remove(st) }, s.add(st)
}

// add adds a stream, unless the server has stopped.
func (s *streams) add(st *stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopped {
		return rpctypes.ErrGRPCStopped
	}
	s.mu.open[st] = struct{}{}
	return nil
}

func (s *streams) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.open, st)
}

// leaderless ends the streams that need a leader.
func (s *streams) leaderless() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.open {
		if st.needsLeader {
			st.end(rpctypes.ErrGRPCNoLeader)
		}
	}
}

// end ends the streams that are open with a status.
func (s *streams) end(status error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.mu.open {
		st.end(status)
	}
}

// stop ends all streams and rejects new ones.
func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopped = true
	for st := range s.mu.open {
		st.end(rpctypes.ErrGRPCStopped)
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
