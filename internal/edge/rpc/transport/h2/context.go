package h2

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// contextState makes a Stream a context. Most requests need neither a channel nor a timer, so it
// makes them on demand.
type contextState struct {
	ended atomic.Uint32 // an ending; changed under lock only
	// lent says that somebody may use the context after its end, because he waits for it or has
	// registered a function.
	lent bool
	// notified says that the exchange is a Filler that is notified of the end.
	notified bool

	deadline time.Duration                   // after epoch, 0 for none; does not change after Start
	late     func() (trailer, whole *Header) // headers for the end at the deadline; nil for a reset

	lock  sync.Mutex // taken after link.mu, if both are
	done  chan struct{}
	timer *time.Timer
	after map[*func()]struct{} // nil after the end
}

// ending says how a context has ended.
type ending uint32

const (
	notEnded ending = iota
	byCancel
	byDeadline
)

// err returns the error of a context with this ending.
func (e ending) err() error {
	switch e {
	case byCancel:
		return context.Canceled
	case byDeadline:
		return context.DeadlineExceeded
	}
	return nil
}

// ending returns how the context has ended.
func (c *contextState) ending() ending { return ending(c.ended.Load()) }

var closedChannel = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// doneChannel returns the channel that is closed at the end.
func (c *contextState) doneChannel() <-chan struct{} {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.lent = true
	if c.done == nil {
		if c.ending() != notEnded {
			c.done = closedChannel
		} else {
			c.done = make(chan struct{})
		}
	}
	return c.done
}

// err returns the error of the context, nil before the end. Once it returns an error, the channel
// is closed.
func (c *contextState) err() error {
	if c.ending() == notEnded {
		return nil
	}
	c.lock.Lock() // the channel is closed under lock
	defer c.lock.Unlock()
	return c.ending().err()
}

// runAfter runs f in its own goroutine after the end, unless stop is called before.
func (c *contextState) runAfter(f func()) (stop func() bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.lent = true
	if c.ending() != notEnded {
		go f()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = map[*func()]struct{}{}
	}
	c.after[&f] = struct{}{}
	return func() bool {
		c.lock.Lock()
		defer c.lock.Unlock()
		_, waiting := c.after[&f]
		delete(c.after, &f)
		return waiting
	}
}

// setDeadline calls expire after d, unless the context ends before. late gives the headers for that
// case.
func (c *contextState) setDeadline(d time.Duration, late func() (trailer, whole *Header),
	expire func()) {
	c.late = late
	now := time.Since(epoch)
	if c.deadline = now + d; c.deadline < now { // d may be the longest duration
		c.deadline = math.MaxInt64
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	// otherwise nobody would stop the timer, which keeps the memory of the stream
	if c.ending() == notEnded {
		c.timer = time.AfterFunc(d, expire)
	}
}

// wantNotification lets endOnce report that the exchange must be notified. It returns false if the
// context has ended.
func (c *contextState) wantNotification() bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.notified = true
	return c.ending() == notEnded
}

// endOnce ends the context. Only the first call has an effect. free reports that nobody who was
// notified of the end will use the context any more, notify that the caller must notify the
// exchange.
func (c *contextState) endOnce(how ending) (free, notify bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.ending() != notEnded {
		return false, false
	}
	c.ended.Store(uint32(how))
	free = !c.lent && !c.notified
	if c.done != nil {
		close(c.done)
	}
	if c.timer != nil {
		free = c.timer.Stop() && free // otherwise expire is running
	}
	for f := range c.after {
		go (*f)()
	}
	c.after = nil
	return free, c.notified
}
