// Package throttle bounds how often something is told: when everything is slow, lines about it must not make
// it slower.
package throttle

import (
	"sync"
	"time"
)

// Throttle lets so many events through in a second. The zero value lets none; it is safe for concurrent use.
type Throttle struct {
	perSecond int

	mu struct {
		sync.Mutex
		since   time.Time // when the second began
		n       int       // events in it
		dropped uint64    // since the last one that was let through
	}
}

// New returns a throttle.
func New(perSecond int) *Throttle { return &Throttle{perSecond: perSecond} }

// Allow reports whether an event at a time is let through, and if so how many were not since the last one
// that was.
func (t *Throttle) Allow(now time.Time) (ok bool, dropped uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := now.Sub(t.mu.since); d >= time.Second || d < 0 {
		t.mu.since, t.mu.n = now, 0
	}
	if t.mu.n >= t.perSecond {
		t.mu.dropped++
		return false, 0
	}
	t.mu.n++
	dropped, t.mu.dropped = t.mu.dropped, 0
	return true, dropped
}
