package space

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
)

// Stall tells since when committed entries cannot be applied because a resource is short. Begin and
// End are for the goroutine that applies.
type Stall struct {
	p      atomic.Pointer[stalled]
	logger *slog.Logger
}

type stalled struct {
	since time.Time
	err   error
}

// NewStall returns a Stall that is not there.
func NewStall(logger *slog.Logger) *Stall { return &Stall{logger: logger} }

// Begin notes that entries after applied, up to committed, wait for the reason err.
func (s *Stall) Begin(err error, applied, committed uint64) {
	if s.p.Load() != nil {
		return
	}
	s.p.Store(&stalled{time.Now(), err})
	next := "free it: what waits goes on by itself"
	switch {
	case errors.Is(err, kv.ErrAway):
		next = "put back the files of this member: what waits goes on by itself"
	case errors.Is(err, kv.ErrNoSpace):
		next = "remove files that are not of this member, or enlarge the volume: deletions and " +
			"compactions wait too"
	}
	s.logger.Warn("nothing is applied: committed entries wait for what the system lacks",
		slog.Uint64("applied", applied), slog.Uint64("committed", committed),
		slog.Any("error", err), slog.String("next", next))
}

// End notes that entries are applied again.
func (s *Stall) End(committed func() uint64) {
	if w := s.p.Swap(nil); w != nil {
		s.logger.Info("committed entries are applied again",
			slog.Duration("waited", time.Since(w.since)), slog.Uint64("committed", committed()))
	}
}

// SinceNoSpace returns since when entries wait for disk space, the zero time if they do not.
func (s *Stall) SinceNoSpace() time.Time {
	if w := s.p.Load(); w != nil && errors.Is(w.err, kv.ErrNoSpace) {
		return w.since
	}
	return time.Time{}
}
