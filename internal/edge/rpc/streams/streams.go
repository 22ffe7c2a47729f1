// Package streams tracks the open streams of a server, so that it can end them.
package streams

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Set is the set of open streams. After a long time without a leader the server ends the streams
// whose clients require one, and when it stops, it ends all. The zero value is empty.
type Set struct {
	mu struct {
		sync.Mutex
		first   *Stream
		stopped bool
	}
}

// Stream is an open stream, an element of a linked list: there may be very many.
type Stream struct {
	Ender
	NeedsLeader bool
	listed      bool
	prev, next  *Stream
}

// Ender ends a stream with a status. It does not wait.
type Ender interface{ End(error) }

// canceler ends a stream by the cause of its context.
type canceler context.CancelCauseFunc

// End implements Ender.
func (c canceler) End(err error) { c(err) }

// Join adds a stream. The context it returns ends with the stream's own or when the server ends the
// stream, and then the reason is its cause. leave must be called when the stream is over.
func (s *Set) Join(ctx context.Context, needsLeader bool) (_ context.Context,
	leave func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	st := &Stream{Ender: canceler(cancel), NeedsLeader: needsLeader}
	if err := s.Add(st); err != nil {
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() {
		cancel(nil)
		s.Remove(st)
	}, nil
}

// Add adds a stream, unless the server has stopped. Remove must be called when it is over.
func (s *Set) Add(st *Stream) error {
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

// Remove removes a stream, if it was added.
func (s *Set) Remove(st *Stream) {
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
func (s *Set) endAll(status error, needLeader bool) {
	for st := s.mu.first; st != nil; st = st.next {
		if st.NeedsLeader || !needLeader {
			st.End(status)
		}
	}
}

// EndLeaderless ends the streams that need a leader.
func (s *Set) EndLeaderless() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endAll(rpctypes.ErrGRPCNoLeader, true)
}

// End ends the streams that are open with a status.
func (s *Set) End(status error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endAll(status, false)
}

// Stop ends all streams and rejects new ones.
func (s *Set) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopped = true
	s.endAll(rpctypes.ErrGRPCStopped, false)
}

// Empty reports whether no stream is open.
func (s *Set) Empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.first == nil
}
