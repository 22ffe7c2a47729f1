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

	// Wrappers log for many places. The beginning of the message distinguishes them; no client
	// chooses it.
	siteText = 24
	maxSites = 1024
)

// site identifies a place in the code that logs.
type site struct {
	pc   uintptr
	text string
}

// credit is the number of lines that a site may still log.
type credit struct {
	lines   float64
	at      time.Time
	dropped uint64     // since the last logged line
	level   slog.Level // the highest of those
}

// sites limits the number of lines of each place in the code: clients can cause lines, and the disk
// of the log is finite.
type sites struct {
	now func() time.Time

	mu struct {
		sync.Mutex
		credits map[site]*credit
		swept   time.Time
		// dropping is the number of sites with dropped lines; looked is the time of their last
		// check.
		dropping int
		looked   time.Time
	}
}

func newSites() *sites {
	s := &sites{now: time.Now}
	s.mu.credits = map[site]*credit{}
	return s
}

// admit reports whether to log a record, and the number of dropped records of its site since the
// last logged one.
func (s *sites) admit(r *slog.Record) (dropped uint64, ok bool) {
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
		if c.dropped++; c.dropped == 1 {
			s.mu.dropping++
			c.level = r.Level
		}
		c.level = max(c.level, r.Level)
		return 0, false
	}
	c.lines--
	return s.reported(c), true
}

// reported returns the number of dropped lines of a site, which the next line reports. mu is held.
func (s *sites) reported(c *credit) (dropped uint64) {
	if c.dropped > 0 {
		s.mu.dropping--
	}
	dropped, c.dropped = c.dropped, 0
	return dropped
}

// fullCredit is the time after which a site has its whole credit again.
const fullCredit = MaxBurst / MaxRate * time.Second

// quiet returns records for the sites that have dropped lines and logged none since: no line of
// these sites would report the drops.
func (s *sites) quiet() (list []slog.Record) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := now.Sub(s.mu.looked); s.mu.dropping == 0 || d >= 0 && d < time.Second {
		return nil
	}
	s.mu.looked = now
	for at, c := range s.mu.credits {
		if c.dropped == 0 || now.Sub(c.at) < fullCredit {
			continue
		}
		text := at.text
		if text == "" {
			text = "many places"
		}
		r := slog.NewRecord(now, c.level, "lines were left out", at.pc)
		r.AddAttrs(slog.String("of", text), slog.Uint64("lines-left-out", s.reported(c)))
		list = append(list, r)
	}
	return list
}

// sweep removes the sites with a full credit again, at most once a second. mu is held.
func (s *sites) sweep(now time.Time) {
	if d := now.Sub(s.mu.swept); d >= 0 && d < time.Second {
		return
	}
	s.mu.swept = now
	for at, c := range s.mu.credits {
		if c.dropped == 0 && now.Sub(c.at) >= fullCredit {
			delete(s.mu.credits, at)
		}
	}
}
