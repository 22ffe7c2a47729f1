package damage

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"vigil/internal/member/replica/handle"
)

// retryPause bounds the pause after a round of the scrubber that could not read everything.
const retryPause = time.Minute

// ScrubberOptions configure a Scrubber. All fields are required.
type ScrubberOptions struct {
	Current *handle.Current
	Places  *Places
	// BytesPerSecond limits how fast the scrubber reads. It rests for Pause between two rounds.
	BytesPerSecond int64
	Pause          time.Duration
	Logger         *slog.Logger
}

// Scrubber reads the store repeatedly to find damage.
type Scrubber struct {
	o ScrubberOptions
	// unreadAt is when a segment that could not be read was last logged, unix nanoseconds.
	unreadAt      atomic.Int64
	bytes, rounds atomic.Uint64
}

// NewScrubber returns a Scrubber. Run makes it read.
func NewScrubber(o ScrubberOptions) *Scrubber { return &Scrubber{o: o} }

// Stats returns how many bytes were read, and how often everything was.
func (s *Scrubber) Stats() (bytes, rounds uint64) { return s.bytes.Load(), s.rounds.Load() }

// Run reads the store until ctx ends.
func (s *Scrubber) Run(ctx context.Context) {
	h := s.o.Current.Load()
	reader := h.Log.NewScrubber(s.o.BytesPerSecond)
	for {
		if now := s.o.Current.Load(); now != h {
			h, reader = now, now.Log.NewScrubber(s.o.BytesPerSecond)
		}
		res, err := reader.Next(ctx)
		if err != nil {
			return
		}
		if h.IsRetired() {
			// Other files may have its names by now.
			select {
			case <-h.Replaced():
			case <-ctx.Done():
				return
			}
			continue
		}
		if res.File != "" {
			s.bytes.Add(uint64(res.Bytes))
			if res.Damage != nil {
				s.o.Places.add(res.Damage)
				s.o.Places.log(res.Damage)
				s.o.Places.Report()
			}
			if res.Unread != nil && onceASecond(&s.unreadAt) {
				s.o.Logger.Warn("the scrubber could not read a segment of the history and tries "+
					"again in the next round",
					slog.String("file", res.File), slog.Any("error", res.Unread))
			}
			continue
		}
		pause := s.o.Pause
		if res.Skipped > 0 {
			pause = min(pause, retryPause)
		} else {
			s.rounds.Add(1)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
