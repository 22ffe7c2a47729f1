package logline

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// MaxBurst is the number of lines that a place in the code may log at once.
	MaxBurst = 100
	// MaxRate is the number of lines a second that it may log continuously.
	MaxRate = 10

	// Wrappers log for many places: the beginning of the message, which no client chooses, distinguishes them.
	siteText = 24
	maxSites = 1024
)

// site is a place in the code that logs.
type site struct {
	pc   uintptr
	text string
}

// credit is the number of lines that a site may still log.
type credit struct {
	lines   float64
	at      time.Time
	dropped uint64 // since the last logged line
}

// sites limits the number of lines of each place in the code: clients can cause lines, and the disk of the log is finite.
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

// take reports whether a record is logged, and the number of dropped records of its site since the last logged record.
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
		at = site{} // shared by all sites above maxSites
		c = s.mu.credits[at]
	}
	if c == nil {
		c = &credit{lines: MaxBurst, at: now}
		s.mu.credits[at] = c
	}
	// A clock that is set back changes no credit.
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

// sweep removes the sites with a full credit again, at most once a second. mu is held.
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
