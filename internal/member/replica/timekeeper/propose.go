package timekeeper

import (
	"context"
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

const (
	// DefaultInterval is how often the leader looks at the newest revision.
	DefaultInterval = time.Second
	// Tolerance is how far the clocks of members may differ without a mark: after a change of the leader the new one
	// waits until its clock has passed the newest mark.
	Tolerance = 10 * time.Second
	// Patience is how long a clock that is further behind may be corrected before later marks are replaced.
	Patience = time.Minute
)

// leader is what the leader has seen.
type leader struct {
	// term is the term in which this member leads and has applied all that earlier leaders have acknowledged; 0 for none.
	term uint64
	// seen is the last look at the newest revision in term, zero if there was none.
	seen kv.TimeMark
	// behind is when the clock was first seen further behind than Tolerance, zero while it is not.
	behind time.Time
	// wall and elapsed are the clock at the last look, and the monotonic time.
	wall, elapsed time.Time
}

// Run proposes marks until ctx ends or the member stops.
func (t *Timekeeper) Run(ctx context.Context) {
	tick := time.NewTicker(t.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.o.Stopping:
			return
		case <-tick.C:
		}
		if req := t.look(ctx); req != nil {
			t.propose(ctx, req)
		}
	}
}

// look looks at the newest revision and returns the request that is to be proposed, nil if there is none.
func (t *Timekeeper) look(ctx context.Context) *kv.TimeRequest {
	l := &t.leader
	term := t.o.Raft.LeadTerm()
	if term == 0 {
		*l = leader{}
		return nil
	}
	if l.term != term {
		l.term, l.seen = 0, kv.TimeMark{}
		if err := t.linearize(ctx); err != nil {
			return nil
		}
		l.term = term
	}
	// In this order: the revision was made before the time.
	rev := t.o.Pipeline.Header().Revision
	now := t.o.Clock()
	t.noteJump(now)
	before, mark := l.seen, kv.TimeMark{Time: now.UnixMilli(), Revision: rev}
	l.seen = mark
	last, ok := t.applied.Load().Last()
	if rev <= max(last.Revision, 1) || mark.Time <= 0 || mark.Time > kv.MaxTime {
		return nil
	}
	req := &kv.TimeRequest{Term: term}
	if ok && mark.Time <= last.Time {
		if !t.mayGoBack(now, time.UnixMilli(last.Time)) {
			return nil
		}
		req.Back = true
	} else {
		l.behind = time.Time{}
		if before.Time > last.Time && before.Time < mark.Time && before.Revision >= last.Revision && before.Revision < rev {
			req.Marks = append(req.Marks, before)
		}
	}
	req.Marks = append(req.Marks, mark)
	return req
}

func (t *Timekeeper) linearize(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.o.RequestTimeout)
	defer cancel()
	return t.o.Pipeline.Linearize(ctx)
}

// mayGoBack reports whether a mark may replace marks after it.
func (t *Timekeeper) mayGoBack(now, newest time.Time) bool {
	l := &t.leader
	ahead := newest.Sub(now)
	if ahead <= Tolerance {
		l.behind = time.Time{}
		return false
	}
	attrs := []any{slog.Time("clock", now), slog.Time("newest-time-of-revisions", newest), slog.Duration("behind", ahead)}
	if l.behind.IsZero() {
		l.behind = time.Now()
		t.o.Logger.Warn("the clock of this member is behind the newest time of revisions: no times are recorded until it has passed that, or later times are replaced after a pause; check the synchronization of the clocks of all members",
			append(attrs, slog.Duration("pause", Patience))...)
	}
	if time.Since(l.behind) < Patience {
		return false
	}
	l.behind = time.Time{}
	t.o.Logger.Warn("replacing times of revisions that are after the clock of this member", attrs...)
	return true
}

// noteJump logs when the clock was set.
func (t *Timekeeper) noteJump(now time.Time) {
	l, elapsed := &t.leader, time.Now()
	if !l.wall.IsZero() {
		if jump := now.Sub(l.wall) - elapsed.Sub(l.elapsed); jump > Tolerance || jump < -Tolerance {
			t.o.Logger.Warn("the clock of this member was set: times of revisions are as right as the clock of the leader", slog.Duration("by", jump))
		}
	}
	l.wall, l.elapsed = now.Round(0), elapsed
}

func (t *Timekeeper) propose(ctx context.Context, r *kv.TimeRequest) {
	ctx, cancel := context.WithTimeout(ctx, t.o.RequestTimeout)
	defer cancel()
	if _, err := t.o.Pipeline.Propose(ctx, &fsm.Request{Time: r}); err != nil {
		// The next mark has the revisions of this one too.
		t.o.Logger.Debug("time of revisions not recorded", slog.Any("error", err))
		return
	}
	t.marks.Add(1)
}
