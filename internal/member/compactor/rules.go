package compactor

import (
	"context"
	"log/slog"
	"time"
)

// The cadence is etcd's.
const (
	// samples is how often the newest revision is noted during a period, or during maxInterval if
	// that is shorter. A revision is compacted at most one sample later than it could be.
	samples = 10
	// maxInterval is the longest time between two compactions of Periodic.
	maxInterval = time.Hour
	// revisionInterval is the time between two checks of Revision.
	revisionInterval = 5 * time.Minute
	// minPeriod keeps the time between two samples at a microsecond or more.
	minPeriod = samples * time.Microsecond
)

// periodic notes the newest revision at every tick. Once it has the notes of a whole period, the
// oldest note is a period old, and it compacts there once per interval.
func (c *Config) periodic(ctx context.Context) {
	interval := min(c.Policy.Period, maxInterval)
	every := interval / samples
	keep := int(c.Policy.Period/every) + 1
	var notes []int64
	done, last := int64(0), time.Now()
	for wait := c.Policy.Period; ; {
		if notes = append(notes, c.Store.Revision()); len(notes) > keep {
			notes = notes[:copy(notes, notes[1:])]
		}
		if !c.tick(ctx, every) {
			return
		}
		if !c.Leading() {
			continue
		}
		rev := notes[0]
		if time.Since(last) < wait || rev == done {
			continue
		}
		wait = interval
		if c.compact(ctx, rev, every, slog.Duration("compact-period", c.Policy.Period)) {
			done, last = rev, time.Now()
		}
	}
}

// revision compacts at the revision that is a retention before the newest. It does so at each tick
// at which that revision has changed.
func (c *Config) revision(ctx context.Context) {
	for done := int64(0); c.tick(ctx, revisionInterval); {
		if !c.Leading() {
			continue
		}
		rev := c.Store.Revision() - c.Policy.Revisions
		if rev <= 0 || rev == done {
			continue
		}
		if c.compact(ctx, rev, revisionInterval,
			slog.Int64("revision-compaction-retention", c.Policy.Revisions)) {
			done = rev
		}
	}
}
