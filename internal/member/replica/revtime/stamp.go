package revtime

import (
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/store/mvcc"
)

// Patience is how long a clock that is far behind may be corrected before it is believed.
const Patience = time.Minute

// Stamper sets the times of groups that the leader adds to its log. It is owned by the turn of
// raft.
type Stamper struct {
	clock  func() time.Time
	newest func() int64
	logger *slog.Logger

	// term is the one of the last group.
	term uint64
	// behind is when the clock was first seen far behind in term, zero while it is not. believed is
	// set from the end of Patience on.
	behind   time.Time
	believed bool
	// wall and elapsed are the clock at the last group, and the monotonic time.
	wall, elapsed time.Time
}

// NewStamper returns a Stamper. newest returns the time of the newest revision that is applied, in
// milliseconds since 1970.
func NewStamper(clock func() time.Time, newest func() int64, logger *slog.Logger) *Stamper {
	return &Stamper{clock: clock, newest: newest, logger: logger}
}

// StampGroup sets the time of a group that this member, the leader of a term, adds to its log.
func (s *Stamper) StampGroup(term uint64, group []byte) {
	if len(group) < fsm.HeaderSize {
		return // applying it fails
	}
	now := s.clock()
	s.noteJump(now)
	if s.term != term {
		s.term, s.behind, s.believed = term, time.Time{}, false
	}
	ms := now.Add(time.Millisecond - 1).UnixMilli()
	if newest := s.newest(); newest-ms <= mvcc.MaxClockLag {
		s.behind, s.believed = time.Time{}, false
	} else if !s.believe(now, newest) {
		ms = newest
	}
	fsm.StampGroup(group, min(max(ms, 0), kv.MaxTime))
}

// believe reports whether a clock that is far behind counts.
func (s *Stamper) believe(now time.Time, newest int64) bool {
	at := time.UnixMilli(newest)
	attrs := []any{slog.Time("clock", now), slog.Time("newest-time-of-revisions", at),
		slog.Duration("behind", at.Sub(now))}
	if s.behind.IsZero() {
		s.behind = time.Now()
		s.logger.Warn("the clock of this member is behind the newest time of revisions: new revisions have that time until the clock has passed it, or later times are corrected after a pause; check the synchronization of the clocks of all members",
			append(attrs, slog.Duration("pause", Patience))...)
	}
	if !s.believed && time.Since(s.behind) >= Patience {
		s.believed = true
		s.logger.Warn("correcting times of revisions that are after the clock of this member",
			attrs...)
	}
	return s.believed
}

// noteJump logs when the clock was set.
func (s *Stamper) noteJump(now time.Time) {
	elapsed := time.Now()
	if !s.wall.IsZero() {
		if jump := now.Sub(s.wall) - elapsed.Sub(s.elapsed); jump.Abs() > mvcc.MaxClockLag*time.Millisecond {
			s.logger.Warn("the clock of this member jumped: revisions get wrong times while it leads", slog.Duration("by", jump))
		}
	}
	s.wall, s.elapsed = now.Round(0), elapsed
}
