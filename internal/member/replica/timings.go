package replica

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"vigil/internal/histogram"
	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/throttle"
)

// timings count how long requests and their parts took. Counting takes no lock.
type timings struct {
	warnApply, noteSteps time.Duration
	tracer               Tracer
	logger               *slog.Logger

	// requests are those of clients of this member, from their arrival until their result; applied is
	// what the state machine did, for all members.
	requests, applied outcomes
	// ranges are reads of keys, without the wait before them; commits are batches of the store.
	ranges  [2]*histogram.Histogram
	commits *histogram.Histogram

	// slow limits the log lines about slow requests.
	slow *throttle.Throttle

	slowApplies, slowReadIndexes, failedReadIndexes atomic.Uint64
}

// outcomes has a histogram for each class of requests and for whether they succeeded.
type outcomes [classes][2]*histogram.Histogram

func (o *outcomes) init(first time.Duration, bounds int) {
	for i := range o {
		o[i] = [2]*histogram.Histogram{histogram.New(first, bounds), histogram.New(first, bounds)}
	}
}

func (o *outcomes) observe(c class, err error, took time.Duration) {
	o[c][succeeded(err)].Observe(took)
}

func succeeded(err error) int {
	if err == nil {
		return 1
	}
	return 0
}

// The bounds are those of etcd's metrics.
func (t *timings) init(c *Config) {
	t.warnApply, t.noteSteps, t.tracer, t.logger = c.WarnApply, c.NoteSteps, c.Tracer, c.Logger
	t.requests.init(time.Millisecond, 14)
	t.applied.init(100*time.Microsecond, 20)
	for i := range t.ranges {
		t.ranges[i] = histogram.New(100*time.Microsecond, 20)
	}
	t.slow = throttle.New(slowLines)
	t.commits = histogram.New(time.Millisecond, 14)
}

// OutcomeTimes are the times that requests of a kind took which came out alike.
type OutcomeTimes struct {
	// Kind is what etcd calls them in its metrics.
	Kind      string
	Succeeded bool
	Times     histogram.Snapshot
}

// Timings is how long things took since the start.
type Timings struct {
	// Requests were asked for by clients of this member, Applied are the entries' requests. What has not
	// occurred is left out.
	Requests, Applied []OutcomeTimes
	// Ranges are reads of keys, by whether they succeeded.
	Ranges [2]histogram.Snapshot
	// Commits are batches written to the store.
	Commits histogram.Snapshot
	// SlowApplies counts requests that took longer than Config.WarnApply, SlowReadIndexes and
	// FailedReadIndexes linearizable reads for which the cluster took long to answer, or did not.
	SlowApplies, SlowReadIndexes, FailedReadIndexes uint64
}

// Timings returns the present figures.
func (r *Replica) Timings() Timings {
	t := &r.timings
	return Timings{
		Requests:          t.requests.read(),
		Applied:           t.applied.read(),
		Ranges:            [2]histogram.Snapshot{t.ranges[0].Read(), t.ranges[1].Read()},
		Commits:           t.commits.Read(),
		SlowApplies:       t.slowApplies.Load(),
		SlowReadIndexes:   t.slowReadIndexes.Load(),
		FailedReadIndexes: t.failedReadIndexes.Load(),
	}
}

func (o *outcomes) read() (out []OutcomeTimes) {
	for c := range o {
		for ok, h := range o[c] {
			if s := h.Read(); s.Count() > 0 {
				out = append(out, OutcomeTimes{Kind: classNames[c], Succeeded: ok == 1, Times: s})
			}
		}
	}
	return out
}

// slowLines limits the log lines about slow requests per second.
const slowLines = 100

// noteSlow counts a request that took long, and reports whether to log it; dropped is the number of requests that were not
// logged since the last one.
func (t *timings) noteSlow(took time.Duration) (log bool, dropped uint64) {
	if t.warnApply <= 0 || took <= t.warnApply {
		return false, 0
	}
	t.slowApplies.Add(1)
	return t.slow.Allow(time.Now())
}

// logSlow logs a request that took long to carry out. The message is etcd's, also for reads.
func (t *timings) logSlow(prefix, request, response string, took time.Duration, dropped uint64, err error) {
	attrs := []any{"took", took, "expected-duration", t.warnApply,
		"prefix", prefix, "request", request, "response", response, slog.Any("error", err)}
	if dropped > 0 {
		attrs = append(attrs, "lines left out", dropped)
	}
	t.logger.Warn("apply request took too long", attrs...)
}

// milestones are when a group reached its stages, counted from its begin; 0 for stages it has not reached.
type milestones struct {
	proposed, committed, applied time.Duration
}

// steps returns how long the steps of a write took that started at start, got its result at end, and was in a group which
// began at begun.
func (m milestones) steps(begun, start, end time.Time) kv.Steps {
	var out kv.Steps
	at := start.Sub(begun)
	for _, s := range []struct {
		name string
		till time.Duration
	}{{"propose", m.proposed}, {"commit", m.committed}, {"apply", m.applied}} {
		if s.till == 0 {
			continue
		}
		out = append(out, kv.Step{Name: s.name, Took: max(s.till-at, 0)})
		at = max(at, s.till)
	}
	return append(out, kv.Step{Name: "wait", Took: max(end.Sub(begun)-at, 0)})
}

// Tracer exports spans.
type Tracer interface {
	// Traced reports whether ctx is within a span that is exported.
	Traced(ctx context.Context) bool
	// Span exports something that was done within the span of ctx.
	Span(ctx context.Context, name string, start, end time.Time)
}

// wantSteps reports whether the steps of a request are to be recorded.
func (t *timings) wantSteps(ctx context.Context, took time.Duration) bool {
	return took > t.noteSteps || t.tracer != nil && t.tracer.Traced(ctx)
}

// trace exports the steps of a request that started at a time.
func (t *timings) trace(ctx context.Context, start time.Time, steps kv.Steps) {
	if t.tracer == nil || !t.tracer.Traced(ctx) {
		return
	}
	for _, s := range steps {
		end := start.Add(s.Took)
		t.tracer.Span(ctx, s.Name, start, end)
		start = end
	}
}

// setSteps stores the steps in the request, for the caller.
func setSteps(r *fsm.Request, s kv.Steps) {
	switch {
	case r.Put != nil:
		r.Put.Steps = &s
	case r.DeleteRange != nil:
		r.DeleteRange.Steps = &s
	case r.Txn != nil:
		r.Txn.Steps = &s
	case r.Compact != nil:
		r.Compact.Steps = &s
	}
}
