package h2

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// contextState is a Stream as a context. It has a channel and a timer only if they are used, which most requests do not.
type contextState struct {
	ended atomic.Uint32 // an ending; changed under lock only
	// lent says that somebody may use the context after the end: who waits for it, or has a function to be run.
	lent bool
	// notified says that the exchange is notified as a Filler.
	notified bool

	deadline time.Duration                   // after epoch, 0 without one; not changed after Start
	late     func() (trailer, whole *Header) // for the end at the deadline; nil for a reset

	lock  sync.Mutex // taken after Conn.mu, if both are
	done  chan struct{}
	timer *time.Timer
	after map[*func()]struct{} // nil after the end
}

// ending is how a context has ended.
type ending uint32

const (
	notEnded ending = iota
	byCancel
	byDeadline
)

func (e ending) err() error {
	switch e {
	case byCancel:
		return context.Canceled
	case byDeadline:
		return context.DeadlineExceeded
	}
	return nil
}

func (c *contextState) ending() ending { return ending(c.ended.Load()) }

var closedChannel = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// Deadline implements context.Context.
func (s *Stream) Deadline() (time.Time, bool) {
	if s.ctx.deadline == 0 {
		return time.Time{}, false
	}
	return epoch.Add(s.ctx.deadline), true
}

// Done implements context.Context.
func (s *Stream) Done() <-chan struct{} {
	s.ctx.lock.Lock()
	defer s.ctx.lock.Unlock()
	s.ctx.lent = true
	if s.ctx.done == nil {
		if s.ctx.ending() != notEnded {
			s.ctx.done = closedChannel
		} else {
			s.ctx.done = make(chan struct{})
		}
	}
	return s.ctx.done
}

// Err implements context.Context.
func (s *Stream) Err() error {
	if s.ctx.ending() == notEnded {
		return nil
	}
	s.ctx.lock.Lock() // so that Done is closed
	defer s.ctx.lock.Unlock()
	return s.ctx.ending().err()
}

// Value implements context.Context.
func (s *Stream) Value(key any) any { return s.c.values.Value(key) }

// AfterFunc runs f in its own goroutine after the end. Package context calls it, so that contexts that are derived from a
// Stream need no goroutine.
func (s *Stream) AfterFunc(f func()) (stop func() bool) {
	s.ctx.lock.Lock()
	defer s.ctx.lock.Unlock()
	s.ctx.lent = true
	if s.ctx.ending() != notEnded {
		go f()
		return func() bool { return false }
	}
	if s.ctx.after == nil {
		s.ctx.after = map[*func()]struct{}{}
	}
	s.ctx.after[&f] = struct{}{}
	return func() bool {
		s.ctx.lock.Lock()
		defer s.ctx.lock.Unlock()
		_, waiting := s.ctx.after[&f]
		delete(s.ctx.after, &f)
		return waiting
	}
}

// SetDeadline ends the stream after d, as Finish does with the headers that late returns, or by a reset if late is nil, or if messages
// wait to be sent. Only Start may call it.
func (s *Stream) SetDeadline(d time.Duration, late func() (trailer, whole *Header)) {
	s.ctx.late = late
	now := time.Since(epoch)
	if s.ctx.deadline = now + d; s.ctx.deadline < now { // d may be the longest duration
		s.ctx.deadline = math.MaxInt64
	}
	s.ctx.lock.Lock()
	defer s.ctx.lock.Unlock()
	if s.ctx.ending() == notEnded { // otherwise nothing would stop the timer, which keeps the memory of the stream
		s.ctx.timer = time.AfterFunc(d, s.expire)
	}
}

// endContext ends the context, once. Conn.mu need not be held. free reports that the context will not be used any more by those who
// were notified of its end.
func (s *Stream) endContext(how ending) (free bool) {
	free, notify := s.endQuietly(how)
	if notify {
		s.c.o.Workers.Run(s.x.(Filler).Ended)
	}
	return free
}

// endQuietly is endContext, but the caller must notify the exchange if notify is set.
func (s *Stream) endQuietly(how ending) (free, notify bool) {
	s.ctx.lock.Lock()
	defer s.ctx.lock.Unlock()
	if s.ctx.ending() != notEnded {
		return false, false
	}
	s.ctx.ended.Store(uint32(how))
	free = !s.ctx.lent && !s.ctx.notified
	if s.ctx.done != nil {
		close(s.ctx.done)
	}
	if s.ctx.timer != nil {
		free = s.ctx.timer.Stop() && free // otherwise expire is running
	}
	for f := range s.ctx.after {
		go (*f)()
	}
	s.ctx.after = nil
	return free, s.ctx.notified
}

var _ context.Context = (*Stream)(nil)
