package gate

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// Starter is the part of the member that carries out the requests that endpoints have started. The
// tag of an outcome is the transport.Pending of its call.
type Starter interface {
	// Unproposed reports whether Propose must be called now, which lets the member propose requests
	// that were started. alone reports that the caller has nothing else to do: then it may get the
	// results of a few requests at once.
	Unproposed() bool
	Propose(dst []kv.Outcome, alone bool) []kv.Outcome
	// Results waits for results and appends all that there are to dst, or none if stop is closed. It
	// may be called concurrently.
	Results(dst []kv.Outcome, stop <-chan struct{}) []kv.Outcome
	// Apply is Results for a few requests that are under way alone, which the member serves on the
	// goroutine of the caller. Results returns the others.
	Apply(dst []kv.Outcome, stop <-chan struct{}) []kv.Outcome
}

// beginCall is serveUnary for calls that need no handler.
func (m *method) beginCall(ctx context.Context, req any, p transport.Pending) (resp any, how transport.Begun) {
	last := p.Last()
	if resp, how = m.answerOrStart(ctx, req, p); how == transport.Started && m.gate.o.Starter.Unproposed() {
		m.gate.propose(last)
	}
	return resp, how
}

// answerOrStart answers or starts a call.
func (m *method) answerOrStart(ctx context.Context, req any, p transport.Pending) (resp any, how transport.Begun) {
	g := m.gate
	if g.logAll || g.authEnabled() || m.rule.Need != Decided || g.o.Member.IsLearner() {
		return nil, transport.Declined
	}
	needsLeader := false
	if md := transport.Metadata(ctx); md != nil {
		needsLeader = asksForLeader(md[rpctypes.MetadataRequireLeaderKey])
	}
	calls, ok := g.callsOf(ctx)
	if !ok || needsLeader && g.o.Member.Leader() == 0 {
		return nil, transport.Declined
	}
	defer func() {
		if e := recover(); e != nil { // the handler would panic, too
			resp, how = nil, transport.Declined
			_ = transport.Recovered(g.o.Logger, m.fullName, e)
		}
	}()
	resp, how = m.Begin(ctx, req, p)
	if how == transport.Declined {
		return nil, how
	}
	if how == transport.Answered || !m.MayDecline {
		m.countBegin(calls)
	}
	if how == transport.Answered {
		arrived := p.Arrived()
		m.noteEnd(ctx, req, resp, arrived, time.Since(arrived), nil) // which costs half of time.Now
	}
	return resp, how
}

// callsOf returns the counter of calls by the client's version; ok is false if there is none yet.
func (g *Gate) callsOf(ctx context.Context) (calls prometheus.Counter, ok bool) {
	version := unknownVersion
	if v := transport.Metadata(ctx)[rpctypes.MetadataClientAPIVersionKey]; len(v) > 0 {
		version = v[0]
	}
	return g.o.Metrics.unary.known(version)
}

// countBegin counts a call that was answered or started.
func (m *method) countBegin(calls prometheus.Counter) {
	calls.Inc()
	m.started.Inc()
	m.received.Inc()
}

// noteEnd counts the end of a call, and logs a slow one.
func (m *method) noteEnd(ctx context.Context, req, resp any, start time.Time, took time.Duration, err error) {
	m.countEnd(status.Code(err), took.Seconds())
	if err == nil {
		m.sent.Inc()
	}
	if warn := m.gate.o.WarnUnary; warn > 0 && took > warn {
		m.gate.logSlowCall(ctx, m.fullName, req, resp, start, took, err)
	}
}

// startedBatch is how many answers are made before they are written: clients get the first of a
// large commit while the others are made.
const startedBatch = 256

// MostKept is the largest list of outcomes that is kept for the next ones.
const MostKept = 4096

// finisher answers calls that were started.
type finisher struct {
	answers transport.Answers
	list    []kv.Outcome
}

// propose lets the member propose what this goroutine has started, and answers what has an outcome
// at once. alone reports that the goroutine has nothing else to do.
func (g *Gate) propose(alone bool) {
	f := g.finishers.Get().(*finisher)
	if f.list = g.o.Starter.Propose(f.list, alone); len(f.list) > 0 {
		f.answerAll()
	}
	g.finishers.Put(f)
}

// answerAll answers the calls of the list, and empties it.
func (f *finisher) answerAll() {
	now := time.Now()
	for i := range f.list {
		p := f.list[i].Tag.(transport.Pending)
		if f.list[i].Declined {
			p.Handle()
			continue
		}
		resp, err := p.Method().Tag.(*method).makeAnswer(p, &f.list[i], now)
		f.answers.Add(p, resp, err)
		if i%startedBatch == startedBatch-1 {
			f.answers.Flush()
		}
	}
	f.answers.Flush()
	clear(f.list)
	if f.list = f.list[:0]; cap(f.list) > MostKept {
		f.list = nil // a member without a leader fails all requests at once
	}
}

// makeAnswer makes the answer to a call that was started.
func (m *method) makeAnswer(p transport.Pending, o *kv.Outcome, now time.Time) (resp any, err error) {
	ctx := p.Context()
	if m.MayDecline { // and so was not counted before
		if calls, ok := m.gate.callsOf(ctx); ok {
			m.countBegin(calls)
		}
	}
	defer func() {
		if e := recover(); e != nil {
			resp, err = nil, transport.Recovered(m.gate.o.Logger, m.fullName, e)
		}
		end := err
		if end == nil && ctx.Err() != nil {
			end = apierror.Status(ctx.Err()) // the client no longer waits
		}
		m.noteEnd(ctx, p.Request(), resp, p.Arrived(), now.Sub(p.Arrived()), end)
	}()
	if o.Err != nil {
		return nil, apierror.Status(o.Err)
	}
	return m.Finish(ctx, o)
}

// numFinishers returns how many goroutines answer calls that were started.
func numFinishers() int { return min(max(runtime.GOMAXPROCS(0)/2, 1), 4) }

// RunFinishers answers calls that were started until the returned function is called.
func (g *Gate) RunFinishers() (end func()) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range numFinishers() {
		running.Go(func() { finishStarted(g.o.Starter.Results, stop) })
	}
	running.Go(func() { finishStarted(g.o.Starter.Apply, stop) })
	return sync.OnceFunc(func() {
		close(stop)
		running.Wait()
	})
}

// finishStarted answers calls that were started, with the outcomes of a method of Starter, until
// stop is closed.
func finishStarted(outcomes func([]kv.Outcome, <-chan struct{}) []kv.Outcome, stop <-chan struct{}) {
	var f finisher
	for {
		if f.list = outcomes(f.list, stop); len(f.list) == 0 {
			return
		}
		f.answerAll()
	}
}
