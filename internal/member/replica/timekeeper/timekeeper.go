package timekeeper

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/state/timeline"
)

// Pipeline is the pipeline of the member.
type Pipeline interface {
	// Header has the newest revision that the member has applied.
	Header() kv.Header
	// Membership returns the membership as of the applied position.
	Membership() *cluster.State
	// Linearize waits until the member has applied everything that any member had applied at the time of the call.
	Linearize(context.Context) error
	// Propose proposes a request and waits for its result.
	Propose(context.Context, *fsm.Request) (fsm.Result, error)
}

// Raft is the member's raft node.
type Raft interface {
	// LeadTerm returns the term in which this member leads, 0 if it does not lead.
	LeadTerm() uint64
}

// Access identifies clients.
type Access interface {
	// CheckUser returns the error of a client that is not a user, while authentication is enabled as far as this member knows.
	CheckUser(context.Context) error
}

// Options configure a Timekeeper. All fields are required.
type Options struct {
	Pipeline Pipeline
	Raft     Raft
	Access   Access
	// CompactRevision returns the compact revision of the store.
	CompactRevision func() int64
	// Interval is how often the leader looks at the newest revision; DefaultInterval in a server.
	Interval time.Duration
	// Clock returns the time of the day.
	Clock func() time.Time
	// RequestTimeout limits how long a request waits for its result.
	RequestTimeout time.Duration
	// Stopping is closed when the member stops.
	Stopping <-chan struct{}
	Logger   *slog.Logger
}

// Timekeeper proposes the times of revisions while its member leads, and answers about them.
type Timekeeper struct {
	o Options
	// applied are the times as of the applied position. Stored by the apply goroutine.
	applied atomic.Pointer[timeline.State]
	marks   atomic.Uint64
	leader  leader // owned by Run
}

// New returns a Timekeeper of the times of a store. Run makes it propose.
func New(o Options, s *timeline.State) *Timekeeper {
	t := &Timekeeper{o: o}
	t.applied.Store(s)
	return t
}

// Follow takes over the times of a batch. The apply goroutine calls it before the batch counts as applied.
func (t *Timekeeper) Follow(s *timeline.State) {
	if t.applied.Load() != s {
		t.applied.Store(s)
	}
}

// Snapshot returns the times as of the applied position.
func (t *Timekeeper) Snapshot() *timeline.State { return t.applied.Load() }

// Marks returns how many requests with times were accepted since the start.
func (t *Timekeeper) Marks() uint64 { return t.marks.Load() }

// futureSlack is how far the clock of a client may be ahead of that of the member.
const futureSlack = 5 * time.Second

// RevisionAt returns the newest revision that is known to be made at or before a time, in milliseconds since 1970. It can
// be read unless it is compacted meanwhile. Errors: a *kv.TimeError, those of auth, and of a linearizable read unless it is
// serializable.
func (t *Timekeeper) RevisionAt(ctx context.Context, ms int64, serializable bool) (int64, error) {
	if err := t.readable(ctx, serializable); err != nil {
		return 0, err
	}
	if now := t.o.Clock(); ms > now.Add(futureSlack).UnixMilli() {
		return 0, &kv.TimeError{Reason: kv.TimeInFuture, Time: ms, Bound: now.UnixMilli()}
	}
	s := t.applied.Load()
	first, ok := s.First()
	if !ok {
		return 0, &kv.TimeError{Reason: kv.NoTimes, Time: ms}
	}
	mark, ok := s.At(ms)
	if !ok {
		return 0, &kv.TimeError{Reason: kv.TimeBeforeFirst, Time: ms, Bound: first.Time}
	}
	if compacted := t.o.CompactRevision(); mark.Revision < compacted {
		e := &kv.TimeError{Reason: kv.TimeCompacted, Time: ms, Revision: mark.Revision, CompactRevision: compacted}
		if m, ok := s.AtOrAfter(compacted); ok {
			e.Bound = m.Time
		}
		return 0, e
	}
	return mark.Revision, nil
}

// Spans returns when revisions were made. Errors: those of auth and of a linearizable read.
func (t *Timekeeper) Spans(ctx context.Context, revisions []int64) ([]kv.TimeSpan, error) {
	if err := t.readable(ctx, false); err != nil {
		return nil, err
	}
	s := t.applied.Load()
	out := make([]kv.TimeSpan, len(revisions))
	for i, rev := range revisions {
		out[i] = s.Span(rev)
	}
	return out, nil
}

// readable waits until the times may be read, and returns why the caller may not read them.
func (t *Timekeeper) readable(ctx context.Context, serializable bool) error {
	err := ctx.Err()
	if !serializable {
		err = t.o.Pipeline.Linearize(ctx)
	}
	if err != nil {
		return err
	}
	return t.o.Access.CheckUser(ctx)
}
