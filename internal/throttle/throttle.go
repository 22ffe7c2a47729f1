// Package throttle rate-limits repetitive log lines: when everything is slow, lines about it must
// not make it slower.
package throttle

import (
	"sync"
	"time"
)

// Throttle allows a number of events a second. The zero value allows none. It is safe for
// concurrent use.
type Throttle struct {
	perSecond int

	mu struct {
		sync.Mutex
		since   time.Time // begin of the current second
		n       int       // events in it
		dropped uint64    // since the last allowed event
	}
}

// New returns a throttle that allows perSecond events a second.
func New(perSecond int) *Throttle { return &Throttle{perSecond: perSecond} }

// Allow reports whether an event at time now is allowed, and if so the number of events dropped
// since the last allowed event.
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
