package gate

import (
	"context"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/streams"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/throttle"
)

// Member is the part of the member that decides about admission. Its methods return at once.
type Member interface {
	IsLearner() bool
	// Leader is the id of the leader, 0 if there is none.
	Leader() uint64
}

// Rights is the part of the member that knows the rights of users. The context of each call has the
// credentials of the caller (kv.CredentialsOf). Errors are kv's.
type Rights interface {
	// AuthEnabled reports whether calls need credentials. It returns at once.
	AuthEnabled() bool
	// User returns the name of the user who makes a call, "" if unknown.
	User(context.Context) string
	// CheckUser rejects callers that are not identified, by what this member knows.
	CheckUser(context.Context) error
	// RequireUser rejects callers that are not identified, RequireAdmin callers without the role
	// root, by what any member knew at the time of the call.
	RequireUser(context.Context) error
	RequireAdmin(context.Context) error
}

// Options are what New needs.
type Options struct {
	Member Member
	// Rights may be nil: then everyone may do everything.
	Rights Rights
	// CertificateUsers makes the common name of a client's certificate its user, if the call has no
	// token.
	CertificateUsers bool
	// Streams are the open streams.
	Streams *streams.Set
	// Proposer is required if an endpoint has Begin.
	Proposer Proposer
	// Deliveries counts large answers of generated messages.
	Deliveries *delivery.Deliveries
	Metrics    *Metrics
	Logger     *slog.Logger
	// WarnUnaryDuration is how long a unary call may take before a line about it is logged;
	// negative means never.
	WarnUnaryDuration time.Duration
}

// Gate admits calls. It is safe for concurrent use.
type Gate struct {
	o Options
	// slow and ended limit the rate of the lines about slow calls and about connections that the
	// transport ended.
	slow, ended *throttle.Throttle
	logAll      bool // every unary call is logged
	answers     answers
}

// New returns a Gate.
func New(o Options) *Gate {
	return &Gate{
		o: o, slow: throttle.New(slowLines), ended: throttle.New(1),
		logAll: o.Logger.Enabled(context.Background(), slog.LevelDebug),
	}
}

// method is a method that is served, with its counters and its rule.
type method struct {
	*methodMetrics
	Endpoint
	gate *Gate
	rule Rule
}

// Serve returns a service as the transport serves it. rules has the rule of each method by its full
// name, such as /etcdserverpb.KV/Range.
func (g *Gate) Serve(s Service, rules map[string]Rule) transport.Service {
	out := transport.Service{Name: s.Name}
	for _, e := range s.Methods {
		m := &method{gate: g, methodMetrics: g.o.Metrics.method(&e, s.Name), Endpoint: e,
			rule: rules["/"+s.Name+"/"+e.Name]}
		t := transport.Method{Name: e.Name, ClientStreams: e.ClientStreams,
			ServerStreams: e.ServerStreams, NewRequest: e.NewRequest, Free: e.Free, Tag: m}
		if e.Begin != nil {
			t.Begin = m.beginCall
		}
		switch {
		case e.Session != nil:
			t.Open = m.openSession
		case e.Stream != nil:
			t.Stream = m.serveStream
		default:
			t.Unary = m.serveUnary
		}
		out.Methods = append(out.Methods, t)
	}
	return out
}

// serveUnary serves a unary call.
func (m *method) serveUnary(ctx context.Context, req any) (resp any, err error) {
	g := m.gate
	m.started.Inc()
	m.received.Inc()
	start := time.Now()
	if g.logAll {
		end := traced(ctx, m.fullName)
		defer func() { end(err) }()
	}
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, transport.Recovered(g.o.Logger, m.fullName, p)
		}
		took := time.Since(start)
		m.countEnd(status.Code(err), took.Seconds())
		if err == nil {
			m.sent.Inc()
		}
		switch warn := g.o.WarnUnaryDuration; {
		case warn > 0 && took > warn:
			g.logSlowCall(ctx, m.fullName, req, resp, start, took, err)
		case g.logAll:
			g.logCall(ctx, slog.LevelDebug, m.fullName, req, resp, start, took, err, 0)
		}
	}()
	forLearner := m.ForLearner || m.ForLearnerIf != nil && m.ForLearnerIf(req)
	if _, err := g.admit(ctx, g.o.Metrics.unary, forLearner); err != nil {
		return nil, err
	}
	ctx = g.withCredentials(ctx)
	if err := g.authorize(ctx, &m.rule, req); err != nil {
		return nil, err
	}
	resp, err = m.Unary(ctx, req)
	if generated, ok := resp.(proto.Message); ok && err == nil {
		return g.o.Deliveries.CountMessage(ctx, generated)
	}
	return resp, err
}

// serveStream serves a stream with a handler.
func (m *method) serveStream(ts transport.Stream) (err error) {
	g := m.gate
	m.started.Inc()
	start := time.Now()
	if g.logAll {
		end := traced(ts.Context(), m.fullName)
		defer func() { end(err) }()
	}
	defer func() {
		if p := recover(); p != nil {
			err = transport.Recovered(g.o.Logger, m.fullName, p)
		}
		m.countEnd(status.Code(err), time.Since(start).Seconds())
	}()
	needsLeader, err := g.admit(ts.Context(), g.o.Metrics.stream, m.ForLearner)
	if err != nil {
		return err
	}
	ctx, leave, err := g.o.Streams.Join(ts.Context(), needsLeader)
	if err != nil {
		return err
	}
	defer leave()
	ctx = g.withCredentials(ctx)
	if err := g.authorize(ctx, &m.rule, nil); err != nil {
		return err
	}
	return m.Stream(&stream{Stream: ts, m: m, ctx: ctx})
}

// stream counts messages and has a context that the server can end.
type stream struct {
	transport.Stream
	m   *method
	ctx context.Context
}

// Context implements transport.Stream.
func (s *stream) Context() context.Context { return s.ctx }

// SendMsg implements transport.Stream.
func (s *stream) SendMsg(message any) error {
	err := s.Stream.SendMsg(message)
	if err == nil {
		s.m.sent.Inc()
	}
	return err
}

// RecvMsg implements transport.Stream.
func (s *stream) RecvMsg(message any) error {
	err := s.Stream.RecvMsg(message)
	if err == nil {
		s.m.received.Inc()
	}
	return err
}

// JoinStreams returns the context of a unary call that may wait long: the server ends it as it ends
// streams. leave must be called when the wait is over.
func (g *Gate) JoinStreams(ctx context.Context) (_ context.Context, leave func(), err error) {
	return g.o.Streams.Join(ctx, requiresLeader(ctx))
}

// LogEnded logs why the transport ended a client's connection, at most once a second.
func (g *Gate) LogEnded(client net.Addr, reason error) {
	ok, dropped := g.ended.Allow(time.Now())
	if !ok {
		return
	}
	attrs := []any{"remote", client.String(), "error", reason}
	if dropped > 0 {
		attrs = append(attrs, "lines left out", dropped)
	}
	g.o.Logger.Warn("ended the connection of a client that violates the protocol or its limits",
		attrs...)
}
