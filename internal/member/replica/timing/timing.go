package timing

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

// Options are the limits above which a Recorder reports requests.
type Options struct {
	// WarnApplyDuration is how long applying or reading may take before it is logged; 0 or less
	// means never. The steps of requests that took longer than NoteSteps are recorded.
	WarnApplyDuration, NoteSteps time.Duration
	// Tracer, if set, exports the steps of requests.
	Tracer Tracer
	Logger *slog.Logger
}

// Tracer exports spans.
type Tracer interface {
	// Traced reports whether ctx is within a span that is exported.
	Traced(ctx context.Context) bool
	// Span exports an operation within the span of ctx.
	Span(ctx context.Context, name string, start, end time.Time)
}

// Recorder counts how long requests and their steps took. Counting takes no lock.
type Recorder struct {
	o Options

	// requests counts the requests of clients of this member, from their arrival until their
	// result; applied counts the requests of all members in the state machine.
	requests, applied outcomes
	// ranges counts reads of keys, without the wait before them; commits counts batches of the
	// store.
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

// New returns a recorder. Its histograms have the bounds of etcd's metrics.
func New(o Options) *Recorder {
	t := &Recorder{o: o}
	t.requests.init(time.Millisecond, 14)
	t.applied.init(100*time.Microsecond, 20)
	for i := range t.ranges {
		t.ranges[i] = histogram.New(100*time.Microsecond, 20)
	}
	t.slow = throttle.New(slowLines)
	t.commits = histogram.New(time.Millisecond, 14)
	return t
}

// OutcomeTimes are the durations of the requests of a kind that succeeded, or of those that failed.
type OutcomeTimes struct {
	// Kind is the name of the kind in etcd's metrics.
	Kind      string
	Succeeded bool
	Times     histogram.Snapshot
}

// Snapshot holds the counts since the start.
type Snapshot struct {
	// Requests are the requests of clients of this member, Applied the requests in entries. They
	// omit outcomes that have not occurred.
	Requests, Applied []OutcomeTimes
	// Ranges are reads of keys, by whether they succeeded.
	Ranges [2]histogram.Snapshot
	// Commits are batches written to the store.
	Commits histogram.Snapshot
	// SlowApplies counts requests that took longer than Options.WarnApplyDuration, SlowReadIndexes
	// and FailedReadIndexes linearizable reads that got the read index late, or not at all.
	SlowApplies, SlowReadIndexes, FailedReadIndexes uint64
}

// Snapshot returns the present counts.
func (t *Recorder) Snapshot() Snapshot {
	return Snapshot{
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

// slowReadIndex is how long the answer of the cluster may take before it counts as slow, as in
// etcd.
const slowReadIndex = 500 * time.Millisecond

// CountReadIndex counts a request for the read index.
func (t *Recorder) CountReadIndex(took time.Duration, err error) {
	if took > slowReadIndex {
		t.slowReadIndexes.Add(1)
	}
	if err != nil {
		t.failedReadIndexes.Add(1)
	}
}

// CountCommit counts a batch that was committed to the store.
func (t *Recorder) CountCommit(took time.Duration) { t.commits.Observe(took) }

// CountApplied counts a request that was applied, and logs it if it was slow.
func (t *Recorder) CountApplied(req *fsm.Request, res *fsm.Result, took time.Duration) {
	t.applied.observe(classOf(req), res.Err, took)
	if log, dropped := t.noteSlow(took); log {
		t.logSlow("", describe(req), describeResult(res), took, dropped, res.Err)
	}
}

// CountWrite counts a write of a client. steps is set if the caller must record the steps with
// SetSteps.
func (t *Recorder) CountWrite(ctx context.Context, req *fsm.Request, took time.Duration,
	err error) (steps bool) {
	t.requests.observe(classOf(req), err, took)
	return t.wantSteps(ctx, took)
}

// SetSteps stores the steps of a write in the request, for the caller, and exports them.
func (t *Recorder) SetSteps(ctx context.Context, req *fsm.Request, start time.Time, s kv.Steps) {
	switch {
	case req.Put != nil:
		req.Put.Steps = &s
	case req.DeleteRange != nil:
		req.DeleteRange.Steps = &s
	case req.Txn != nil:
		req.Txn.Steps = &s
	case req.Compact != nil:
		req.Compact.Steps = &s
	}
	t.trace(ctx, start, s)
}

// Read has the times of a read: Ready is the time until the store could be read, Took the time
// until the end.
type Read struct {
	Start       time.Time
	Ready, Took time.Duration
}

// CountScan counts the part of a range that reads keys.
func (t *Recorder) CountScan(took time.Duration, err error) {
	t.ranges[succeeded(err)].Observe(took)
}

// CountRange counts a range of a client, records its steps in the request, and logs it if it was
// slow.
func (t *Recorder) CountRange(ctx context.Context, req *kv.RangeRequest, res *kv.RangeResult,
	r Read, err error) {
	t.requests.observe(readRange, err, r.Took)
	if t.wantSteps(ctx, r.Took) {
		req.Steps = t.readSteps(ctx, r)
	}
	if log, dropped := t.noteSlow(r.Took); log {
		t.logSlow("read-only range ", req.Describe(), describeRange(res), r.Took, dropped, err)
	}
}

// CountTxn does the same as CountRange for a transaction that only reads.
func (t *Recorder) CountTxn(ctx context.Context, req *kv.TxnRequest, res *kv.TxnResult,
	r Read, err error) {
	t.requests.observe(readTxn, err, r.Took)
	if t.wantSteps(ctx, r.Took) {
		req.Steps = t.readSteps(ctx, r)
	}
	if log, dropped := t.noteSlow(r.Took); log {
		t.logSlow("read-only txn ", req.Describe(), describeTxn(res), r.Took, dropped, err)
	}
}

// readSteps returns and exports the steps of a read.
func (t *Recorder) readSteps(ctx context.Context, r Read) *kv.Steps {
	steps := kv.Steps{{Name: "agree", Took: r.Ready}, {Name: "read", Took: r.Took - r.Ready}}
	t.trace(ctx, r.Start, steps)
	return &steps
}

// wantSteps reports whether to record the steps of a request.
func (t *Recorder) wantSteps(ctx context.Context, took time.Duration) bool {
	return took > t.o.NoteSteps || t.o.Tracer != nil && t.o.Tracer.Traced(ctx)
}

// trace exports the steps of a request that started at a time.
func (t *Recorder) trace(ctx context.Context, start time.Time, steps kv.Steps) {
	if t.o.Tracer == nil || !t.o.Tracer.Traced(ctx) {
		return
	}
	for _, s := range steps {
		end := start.Add(s.Took)
		t.o.Tracer.Span(ctx, s.Name, start, end)
		start = end
	}
}

// slowLines limits the log lines about slow requests per second.
const slowLines = 100

// noteSlow counts a request that took long, and reports whether to log it; dropped is the number of
// requests that were not logged since the last one.
func (t *Recorder) noteSlow(took time.Duration) (log bool, dropped uint64) {
	if t.o.WarnApplyDuration <= 0 || took <= t.o.WarnApplyDuration {
		return false, 0
	}
	t.slowApplies.Add(1)
	return t.slow.Allow(time.Now())
}

// logSlow logs a request that took long to carry out. The message is etcd's, also for reads.
func (t *Recorder) logSlow(prefix, request, response string, took time.Duration,
	dropped uint64, err error) {
	attrs := []any{"took", took, "expected-duration", t.o.WarnApplyDuration,
		"prefix", prefix, "request", request, "response", response, slog.Any("error", err)}
	if dropped > 0 {
		attrs = append(attrs, "lines left out", dropped)
	}
	t.o.Logger.Warn("apply request took too long", attrs...)
}
