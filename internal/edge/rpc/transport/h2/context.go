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
	// notified says that the exchange is notified of the end as a Filler.
	notified bool

	deadline time.Duration                   // after epoch, 0 without one; not changed after Start
	late     func() (trailer, whole *Header) // for the end at the deadline; nil for a reset

	lock  sync.Mutex // taken after link.mu, if both are
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

// err returns the error of the context, nil before the end. The channel is closed when there is one.
func (c *contextState) err() error {
	if c.ending() == notEnded {
		return nil
	}
	c.lock.Lock() // so that the channel is closed
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

// setDeadline calls expire after d, unless the context ends before. late is for the answer then.
func (c *contextState) setDeadline(d time.Duration, late func() (trailer, whole *Header), expire func()) {
	c.late = late
	now := time.Since(epoch)
	if c.deadline = now + d; c.deadline < now { // d may be the longest duration
		c.deadline = math.MaxInt64
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.ending() == notEnded { // otherwise nothing would stop the timer, which keeps the memory of the stream
		c.timer = time.AfterFunc(d, expire)
	}
}

// wantNotification lets end report that the exchange must be notified. It returns false if the context has ended.
func (c *contextState) wantNotification() bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.notified = true
	return c.ending() == notEnded
}

// endOnce ends the context, once. free reports that the context will not be used any more by those who were notified of its end, notify that
// the caller must notify the exchange.
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
