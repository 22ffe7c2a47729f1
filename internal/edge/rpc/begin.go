package rpc

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/times"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// Starter is the part of the member that serves requests on goroutines that must not wait. Its methods decline what might
// wait, and what is rejected: nothing was done then, and the request goes to KV or Leases.
type Starter interface {
	// Get reads one key into res, which must not be kept. The request began at start.
	Get(ctx context.Context, r *kv.RangeRequest, res *kv.GetResult, start time.Time) (ok bool)
	// StartGet and StartWrite start a request; Results returns its result, with the tag. That of a get
	// may be that it is declined, and must not be kept. Unproposed must follow.
	StartGet(r *kv.RangeRequest, tag any) (started bool)
	StartWrite(ctx context.Context, w kv.Write, tag any) (started bool)
	// Renew renews a lease, and returns its TTL.
	Renew(id int64) (ttl int64, ok bool)
	// Unproposed reports whether Propose must be called now, which lets requests be proposed that were started. alone reports that the
	// caller has nothing else to do: then it may get the results of a few requests at once.
	Unproposed() bool
	Propose(dst []kv.Outcome, alone bool) []kv.Outcome
	// Results waits for results and appends all that there are to dst, or none if stop is closed. It may be called
	// concurrently.
	Results(dst []kv.Outcome, stop <-chan struct{}) []kv.Outcome
	// Apply is Results for a few requests that are under way alone, which the member serves on the goroutine of the caller. Results returns
	// the others.
	Apply(dst []kv.Outcome, stop <-chan struct{}) []kv.Outcome
}

// writes returns a unary method that writes: write validates a request, answer makes the answer of its
// outcome. A call that can be started needs no handler. Any other one has a handler, which waits.
func writes[Request any](s *service, name string, write func(*Request) (kv.Write, error),
	answer func(context.Context, *kv.Outcome) (wire.Encoder, error)) endpoint {
	e := unary(name, func(ctx context.Context, r *Request) (any, error) {
		w, err := write(r)
		if err != nil {
			return nil, err
		}
		o := s.cfg.KV.Do(s.withHolders(ctx), w)
		if o.Err != nil {
			return nil, apierror.Status(o.Err)
		}
		return answer(ctx, &o)
	})
	if s.cfg.Starter == nil {
		return e
	}
	e.begin = func(ctx context.Context, r any, p transport.Pending) (any, transport.Begun) {
		w, err := write(r.(*Request))
		if err != nil {
			return nil, transport.Declined
		}
		return nil, started(s.cfg.Starter.StartWrite(ctx, w, p))
	}
	e.finish = func(ctx context.Context, o *kv.Outcome) (any, error) { return answer(ctx, o) }
	return e
}

// started returns what has become of a call, by whether the member has started it.
func started(ok bool) transport.Begun {
	if ok {
		return transport.Started
	}
	return transport.Declined
}

func (s *service) beginRange(ctx context.Context, request any, p transport.Pending) (any, transport.Begun) {
	r := request.(*wire.RangeRequest)
	if validate.Range(&r.RangeRequest) != nil || times.Given(transport.Metadata(ctx)) {
		return nil, transport.Declined
	}
	a := r.MakeAnswer()
	if !s.cfg.Starter.Get(ctx, &r.RangeRequest, &a.Memory, p.Arrived()) {
		r.DropAnswer()
		return nil, started(s.cfg.Starter.StartGet(&r.RangeRequest, p))
	}
	a.Header, a.Result = s.header(a.Memory.Revision), &a.Memory.RangeResult
	return &a.RangeResponse, transport.Answered
}

// begin is Server.serveUnary for calls that need no handler.
func (s *Server) begin(ctx context.Context, m *method, req any, p transport.Pending) (resp any, how transport.Begun) {
	last := p.Last()
	if resp, how = s.start(ctx, m, req, p); how == transport.Started && s.svc.cfg.Starter.Unproposed() {
		s.propose(last)
	}
	return resp, how
}

// start answers or starts a call.
func (s *Server) start(ctx context.Context, m *method, req any, p transport.Pending) (resp any, how transport.Begun) {
	svc := s.svc
	if svc.logAll || svc.enabled() || m.rule.need != decided || svc.cfg.Member.IsLearner() {
		return nil, transport.Declined
	}
	needsLeader := false
	if md := transport.Metadata(ctx); md != nil {
		v := md[rpctypes.MetadataRequireLeaderKey]
		needsLeader = len(v) > 0 && v[0] == rpctypes.MetadataHasLeader
	}
	calls, ok := svc.callsOf(ctx)
	if !ok || needsLeader && svc.cfg.Member.Leader() == 0 {
		return nil, transport.Declined
	}
	defer func() {
		if e := recover(); e != nil { // the handler would panic, too
			resp, how = nil, transport.Declined
			_ = transport.Recovered(svc.log, m.fullName, e)
		}
	}()
	resp, how = m.begin(ctx, req, p)
	if how == transport.Declined {
		return nil, how
	}
	if how == transport.Answered || !m.mayDecline {
		calls.Inc()
		m.started.Inc()
		m.received.Inc()
	}
	if how == transport.Answered {
		arrived := p.Arrived()
		s.noteEnd(ctx, m, req, resp, arrived, time.Since(arrived), nil) // which costs half of time.Now
	}
	return resp, how
}

// callsOf returns the counter of calls by the client's version; ok is false if there is none yet.
func (s *service) callsOf(ctx context.Context) (calls prometheus.Counter, ok bool) {
	version := "unknown"
	if v := transport.Metadata(ctx)[rpctypes.MetadataClientAPIVersionKey]; len(v) > 0 {
		version = v[0]
	}
	return s.cfg.Metrics.unary.Known(version)
}

// noteEnd counts the end of a call, and logs a slow one.
func (s *Server) noteEnd(ctx context.Context, m *method, req, resp any, start time.Time, took time.Duration, err error) {
	m.ended(status.Code(err), took.Seconds())
	if err == nil {
		m.sent.Inc()
	}
	if warn := s.svc.cfg.WarnUnary; warn > 0 && took > warn {
		s.svc.logSlowCall(ctx, m.fullName, req, resp, start, took, err)
	}
}

// startedBatch is how many answers are made before they are written: clients get the first of a large commit while the others
// are made.
const startedBatch = 256

// mostKept is the largest list of results that is kept for the next ones.
const mostKept = 4096

// finisher answers calls that were started.
type finisher struct {
	answers transport.Answers
	list    []kv.Outcome
}

// finishStarted answers calls that were started, with the results of a method of Starter, until stop is closed.
func (s *Server) finishStarted(results func([]kv.Outcome, <-chan struct{}) []kv.Outcome, stop <-chan struct{}) {
	var f finisher
	for {
		if f.list = results(f.list, stop); len(f.list) == 0 {
			return
		}
		s.answer(&f)
	}
}

// propose lets the member propose what this goroutine has started, and answers what has a result at once. alone reports that the
// goroutine has nothing else to do.
func (s *Server) propose(alone bool) {
	f := s.finishers.Get().(*finisher)
	if f.list = s.svc.cfg.Starter.Propose(f.list, alone); len(f.list) > 0 {
		s.answer(f)
	}
	s.finishers.Put(f)
}

// answer answers the calls of the list, and empties it.
func (s *Server) answer(f *finisher) {
	now := time.Now()
	for i := range f.list {
		p := f.list[i].Tag.(transport.Pending)
		if f.list[i].Declined {
			p.Handle()
			continue
		}
		resp, err := s.finish(p, &f.list[i], now)
		f.answers.Add(p, resp, err)
		if i%startedBatch == startedBatch-1 {
			f.answers.Flush()
		}
	}
	f.answers.Flush()
	clear(f.list)
	if f.list = f.list[:0]; cap(f.list) > mostKept {
		f.list = nil // a member without a leader fails all requests at once
	}
}

// finish makes the answer to a call that was started.
func (s *Server) finish(p transport.Pending, o *kv.Outcome, now time.Time) (resp any, err error) {
	ctx, req, m := p.Context(), p.Request(), p.Method().Tag.(*method)
	if m.mayDecline { // and so was not counted before
		if calls, ok := s.svc.callsOf(ctx); ok {
			calls.Inc()
		}
		m.started.Inc()
		m.received.Inc()
	}
	defer func() {
		if e := recover(); e != nil {
			resp, err = nil, transport.Recovered(s.svc.log, m.fullName, e)
		}
		end := err
		if end == nil && ctx.Err() != nil {
			end = apierror.Status(ctx.Err()) // the client does not wait any more
		}
		s.noteEnd(ctx, m, req, resp, p.Arrived(), now.Sub(p.Arrived()), end)
	}()
	if o.Err != nil {
		return nil, apierror.Status(o.Err)
	}
	return m.finish(ctx, o)
}

// numFinishers returns how many goroutines answer calls that were started.
func numFinishers() int { return min(max(runtime.GOMAXPROCS(0)/2, 1), 4) }

// runFinishers answers calls that were started until the returned function is called.
func (s *Server) runFinishers() (end func()) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range numFinishers() {
		running.Go(func() { s.finishStarted(s.svc.cfg.Starter.Results, stop) })
	}
	running.Go(func() { s.finishStarted(s.svc.cfg.Starter.Apply, stop) })
	return sync.OnceFunc(func() {
		close(stop)
		running.Wait()
	})
}
