package logline

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// MaxBurst is how many lines a place in the code may log at once.
	MaxBurst = 100
	// MaxRate is how many lines a second it may log for ever.
	MaxRate = 10

	// Wrappers log for many places: the beginning of the message, which no client chooses, tells them apart.
	siteText = 24
	maxSites = 1024
)

// site is a place in the code that logs.
type site struct {
	pc   uintptr
	text string
}

// credit is what a site may still log.
type credit struct {
	lines   float64
	at      time.Time
	dropped uint64 // since the last line that was let through
}

// sites bounds how many lines each place in the code logs. What clients do makes lines, and the disk of the
// log is finite.
type sites struct {
	now func() time.Time

	mu struct {
		sync.Mutex
		credits map[site]*credit
		swept   time.Time
	}
}

func newSites() *sites {
	s := &sites{now: time.Now}
	s.mu.credits = map[site]*credit{}
	return s
}

// take reports whether a record becomes a line, and how many of its site did not since the last one.
func (s *sites) take(r *slog.Record) (dropped uint64, ok bool) {
	at := site{r.PC, r.Message[:min(siteText, len(r.Message))]}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.credits[at]
	if c == nil && len(s.mu.credits) >= maxSites {
		s.sweep(now)
	}
	if c == nil && len(s.mu.credits) >= maxSites {
		at = site{} // shared by all that are too many
		c = s.mu.credits[at]
	}
	if c == nil {
		c = &credit{lines: MaxBurst, at: now}
		s.mu.credits[at] = c
	}
	// A clock that was set back gives nothing and takes nothing.
	c.lines = min(c.lines+max(now.Sub(c.at).Seconds(), 0)*MaxRate, MaxBurst)
	c.at = now
	if c.lines < 1 {
		c.dropped++
		return 0, false
	}
	c.lines--
	dropped, c.dropped = c.dropped, 0
	return dropped, true
}

// sweep forgets the sites that have logged nothing for so long that they are as good as new, once a second at
// most. mu is held.
func (s *sites) sweep(now time.Time) {
	if d := now.Sub(s.mu.swept); d >= 0 && d < time.Second {
		return
	}
	s.mu.swept = now
	for at, c := range s.mu.credits {
		if c.dropped == 0 && now.Sub(c.at) >= MaxBurst/MaxRate*time.Second {
			delete(s.mu.credits, at)
		}
	}
}
