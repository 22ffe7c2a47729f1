package compactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"

	"vigil/internal/kv"
)

// Mode selects the rule by which revisions count as old.
type Mode string

// The modes.
const (
	// Periodic keeps the revisions of a period of time.
	Periodic Mode = "periodic"
	// Revision keeps a number of revisions.
	Revision Mode = "revision"
)

// Policy selects the revisions to keep. The zero value keeps everything.
type Policy struct {
	Mode Mode
	// Period is the time whose revisions Periodic keeps. Revisions is the number of revisions that
	// Revision keeps besides the newest one.
	Period    time.Duration
	Revisions int64
}

// Enabled reports whether p ever compacts anything.
func (p Policy) Enabled() bool {
	return p.Mode == Periodic && p.Period > 0 || p.Mode == Revision && p.Revisions > 0
}

// By default nothing is compacted automatically.
const (
	DefaultMode      = Periodic
	DefaultRetention = "0"
)

// Parse reads a mode and a retention in the format of etcd's command line. The empty mode is
// DefaultMode. A bare number is hours for Periodic and revisions for Revision; Periodic also
// accepts durations such as "90m". With 0, both modes compact nothing.
func Parse(mode, retention string) (Policy, error) {
	p := Policy{Mode: Mode(mode)}
	if mode == "" {
		p.Mode = DefaultMode
	}
	if p.Mode != Periodic && p.Mode != Revision {
		return Policy{}, fmt.Errorf("mode %q is neither %q nor %q", mode, Periodic, Revision)
	}
	if retention == "" {
		return p, nil
	}
	n, err := strconv.ParseInt(retention, 10, 64)
	switch {
	case p.Mode == Revision:
		if err != nil || n < 0 {
			return Policy{}, fmt.Errorf("retention %q is not a number of revisions: want a whole "+
				"number from 0", retention)
		}
		p.Revisions = n
	case err == nil:
		if n < 0 || n > int64(math.MaxInt64/time.Hour) {
			return Policy{}, fmt.Errorf("retention %q is not a number of hours from 0 to %d",
				retention, int64(math.MaxInt64/time.Hour))
		}
		p.Period = time.Duration(n) * time.Hour
	default:
		if p.Period, err = time.ParseDuration(retention); err != nil {
			return Policy{}, fmt.Errorf("retention %q is neither a number of hours nor a "+
				"duration such as 90m", retention)
		}
		p.Period = max(p.Period, 0) // like etcd, which does not compact then
		if p.Period > 0 && p.Period < minPeriod {
			return Policy{}, fmt.Errorf("retention %v is less than %v", p.Period,
				time.Duration(minPeriod))
		}
	}
	return p, nil
}

// Store is the store to compact.
type Store interface {
	// Revision returns the newest revision.
	Revision() int64
	// Compact removes the data that only revisions below rev can see. It returns kv.ErrCompacted if
	// the store was already compacted at rev.
	Compact(ctx context.Context, rev int64) error
}

// Config configures a compactor. Logger may be nil.
type Config struct {
	Policy Policy
	Store  Store
	// Leading reports whether this member compacts for the cluster. It must be cheap.
	Leading func() bool
	Logger  *slog.Logger
}

// Run compacts until ctx ends. It returns at once if the policy keeps everything.
func Run(ctx context.Context, c Config) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case !c.Policy.Enabled():
	case c.Policy.Mode == Periodic:
		c.periodic(ctx)
	default:
		c.revision(ctx)
	}
}

// tick waits for d. It returns false if ctx has ended.
func (c *Config) tick(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}

// compact compacts at a revision, logs the result, and reports whether it succeeded. how is a log
// attribute that names the rule.
func (c *Config) compact(ctx context.Context, rev int64, retry time.Duration, how slog.Attr) bool {
	began := time.Now()
	log := c.Logger.With(slog.Int64("revision", rev), how)
	log.Info(fmt.Sprintf("starting auto %s compaction", c.Policy.Mode))
	err := c.Store.Compact(ctx, rev)
	if err != nil && !errors.Is(err, kv.ErrCompacted) {
		log.Warn(fmt.Sprintf("failed auto %s compaction", c.Policy.Mode), "retry-interval",
			retry, "error", err)
		return false
	}
	log.Info(fmt.Sprintf("completed auto %s compaction", c.Policy.Mode), "took", time.Since(began))
	return true
}
