package proposal

import (
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
)

// Group holds requests that become one entry.
type Group struct {
	seq   uint64
	buf   []byte
	calls []*Call
	marks Milestones
	// results are kept by the apply goroutine between applying and resolving.
	results []fsm.Result
	// term is the term in which the group was proposed, 0 before that.
	term uint64
	// cost is the number of bytes that the requests add to the store.
	cost int64
	// conf is set for a configuration change, which NextGroup does not return.
	conf bool

	q *Queue
	// started is the memory of Fail.
	started []*Call
}

// keepGroup bounds the memory that a group keeps when it is used again. A full group with large
// values is a little larger than Options.MaxGroupBytes.
const keepGroup = 2 << 20

// Begun returns when the first request was added. Expire ends the group that is being filled, so
// all its requests are about as old.
func (g *Group) Begun() time.Time { return g.marks.Begun }

// Proposed reports whether the group was proposed.
func (g *Group) Proposed() bool { return g.term != 0 }

// IsChange reports whether the group is a configuration change.
func (g *Group) IsChange() bool { return g.conf }

// Waits reports whether the group has calls that have not expired.
func (g *Group) Waits() bool { return len(g.calls) > 0 }

// NoteCommitted notes when raft committed the group.
func (g *Group) NoteCommitted(at time.Time) { g.marks.committed = at.Sub(g.marks.Begun) }

// AddResult adds the result of the next request of the group.
func (g *Group) AddResult(res fsm.Result) {
	if g.results == nil {
		g.results = make([]fsm.Result, 0, len(g.calls))
	}
	g.results = append(g.results, res)
}

// Fail gives every call of g the same error.
func (g *Group) Fail(err error) {
	for _, w := range g.calls {
		if w != nil {
			g.resolve(w, fsm.Result{Err: err})
		}
	}
	g.deliverFailed()
}

// Resolve gives the calls of g the available results, after these have been applied, and appends
// the calls that nobody waits for to dst, for Deliver. A resolved call may serve another request by
// now, so it is removed from g.
func (g *Group) Resolve(dst []*Call) []*Call {
	g.marks.applied = time.Since(g.marks.Begun)
	for k, w := range g.calls[:min(len(g.calls), len(g.results))] {
		if w == nil {
			continue
		}
		if s := w.setResult(g.results[k], g.marks); s != nil {
			dst = append(dst, s)
		}
		g.calls[k], g.results[k] = nil, fsm.Result{}
	}
	return dst
}

func (g *Group) resolve(w *Call, res fsm.Result) {
	if s := w.setResult(res, g.marks); s != nil {
		g.started = append(g.started, s)
	}
}

// deliverFailed delivers the calls that have failed and that nobody waits for.
func (g *Group) deliverFailed() {
	g.started = g.q.deliverNow(g.started)
}

// Milestones are when a group began, and how long after that it reached its stages; 0 for stages
// not reached.
type Milestones struct {
	Begun                        time.Time
	proposed, committed, applied time.Duration
}

// Steps returns the durations of the steps of a write that started at start and got its result at
// end.
func (m Milestones) Steps(start, end time.Time) kv.Steps {
	var out kv.Steps
	at := start.Sub(m.Begun)
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
	return append(out, kv.Step{Name: "wait", Took: max(end.Sub(m.Begun)-at, 0)})
}
