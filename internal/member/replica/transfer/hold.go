package transfer

import (
	"log/slog"
	"time"

	"vigil/internal/member/raftnode"
)

// hold records the position of a snapshot that was sent to a member, and when the sender last heard
// of the member.
type hold struct {
	index uint64
	heard time.Time
}

const (
	// awayFor is how long the log keeps entries for a silent member that was sent a snapshot: the
	// member may be restarting to install it.
	awayFor = 10 * time.Minute
	// mostEntries limits the entries that the log keeps: each of them takes some memory.
	mostEntries = 2 << 20
)

// Log describes the raft log, and the members that it is kept for.
type Log struct {
	// First is the index of the first entry, and Bytes the size. Beyond Most bytes nothing is kept
	// for members that lag.
	First       uint64
	Bytes, Most int64
	// Progress is the progress of the other members, nil if this member does not lead.
	Progress map[uint64]raftnode.Progress
}

// LimitTruncation returns the index up to which the raft log may be truncated, at most cut. It
// keeps the entries that spare a member a first or another snapshot: the entries after a snapshot
// that is being sent, or that was sent to a member which has not installed it yet, and the entries
// after the last one of a member that lags and is heard of. It stops keeping entries when the log
// gets too large.
func (s *Sender) LimitTruncation(cut uint64, l Log) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, lowest := time.Now(), cut
	keep := func(index uint64) { lowest = min(lowest, index) }
	for _, index := range s.mu.to {
		if index > 0 {
			keep(index)
		}
	}
	for id, h := range s.mu.sent {
		p, ok := l.Progress[id]
		if p.Active {
			h.heard = now
		}
		if !ok || p.Match >= h.index || now.Sub(h.heard) > awayFor {
			delete(s.mu.sent, id) // from now on it lags, or does not
			continue
		}
		s.mu.sent[id] = h
		keep(h.index)
	}
	for id, p := range l.Progress {
		// A member whose next entry is gone gets a snapshot.
		if _, busy := s.mu.to[id]; !busy && p.Active && p.Match > 0 && p.Match+1 >= l.First {
			keep(p.Match)
		}
	}
	exhausted := lowest < cut && (l.Bytes > l.Most || cut-lowest > mostEntries)
	if exhausted && !s.mu.exhausted {
		s.o.Logger.Warn("the raft log is not kept any longer for a member that lags, which needs "+
			"a snapshot then; see --max-catchup-bytes",
			slog.Int64("log-bytes", l.Bytes), slog.Int64("max-catchup-bytes", l.Most),
			slog.Uint64("entries", cut-lowest), slog.Int("max-entries", mostEntries))
	}
	if s.mu.exhausted = exhausted; exhausted {
		return cut
	}
	return lowest
}
