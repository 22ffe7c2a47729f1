package gate

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// Proposer is the part of the member that carries out the requests that endpoints have started.
type Proposer interface {
	// ProposeStarted proposes the requests that were started. alone reports that the caller has
	// nothing else to do: then it may carry out the request itself, if that is quick.
	ProposeStarted(alone bool)
}

// beginCall is serveUnary for calls that need no handler.
func (m *method) beginCall(ctx context.Context, req any, p transport.Pending) (resp any,
	how transport.Begun) {
	last := p.Last()
	if resp, how = m.answerOrStart(ctx, req, p); how == transport.Started {
		m.gate.o.Proposer.ProposeStarted(last)
	}
	return resp, how
}

// answerOrStart answers or starts a call.
func (m *method) answerOrStart(ctx context.Context, req any, p transport.Pending) (resp any,
	how transport.Begun) {
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
func (m *method) noteEnd(ctx context.Context, req, resp any, start time.Time,
	took time.Duration, err error) {
	m.countEnd(status.Code(err), took.Seconds())
	if err == nil {
		m.sent.Inc()
	}
	if warn := m.gate.o.WarnUnaryDuration; warn > 0 && took > warn {
		m.gate.logSlowCall(ctx, m.fullName, req, resp, start, took, err)
	}
}

// startedBatch is how many answers are made before they are written: clients get the first of a
// large commit while the others are made.
const startedBatch = 256

// answers is the state of answering calls that were started.
type answers struct {
	lists sync.Pool // of *transport.Answers
	mu    struct {
		sync.RWMutex // held for reading while calls are answered
		stopped      bool
	}
}

// StopAnswers waits until no calls are being answered. Later outcomes are dropped.
func (g *Gate) StopAnswers() {
	g.answers.mu.Lock()
	defer g.answers.mu.Unlock()
	g.answers.mu.stopped = true
}

// Receive implements kv.Receiver: it answers calls that were started. The tag of an outcome is the
// transport.Pending of its call.
func (g *Gate) Receive(list []kv.Outcome) {
	a := &g.answers
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.mu.stopped {
		return
	}
	to, _ := a.lists.Get().(*transport.Answers)
	if to == nil {
		to = &transport.Answers{}
	}
	now := time.Now()
	for i := range list {
		p := list[i].Tag.(transport.Pending)
		if list[i].Declined {
			p.Handle()
			continue
		}
		resp, err := p.Method().Tag.(*method).makeAnswer(p, &list[i], now)
		to.Add(p, resp, err)
		if i%startedBatch == startedBatch-1 {
			to.Flush()
		}
	}
	to.Flush()
	a.lists.Put(to)
}

// makeAnswer makes the answer to a call that was started.
func (m *method) makeAnswer(p transport.Pending, o *kv.Outcome,
	now time.Time) (resp any, err error) {
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
