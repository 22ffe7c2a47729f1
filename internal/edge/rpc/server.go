package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/inprocess"
	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/store/watch"
	"vigil/internal/throttle"
)

// Server serves the API on connections. Its methods are safe for concurrent use.
type Server struct {
	svc       *service
	transport *transport.Server
	health    *healthService
	methods   map[string]*method // by full name; not changed after NewServer
	codec     *transport.Codec
	inProcess *inprocess.Caller

	stop     func() // ends the goroutines that watch for a leader and for changes of users
	cut      func() // ends what handlers do after their calls
	finished func() // ends the goroutines that answer calls that were started; nil without a Starter
	// finishers are for propose.
	finishers sync.Pool
	watching  sync.WaitGroup
}

// method is a method that is served, with its counters and its rule.
type method struct {
	*methodMetrics
	endpoint
	served     transport.Method
	rule       access
	forLearner bool
}

// NewServer makes a server. It has goroutines from now on: Stop must be called.
func NewServer(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	c = c.WithDefaults()
	s := &Server{
		svc: &service{cfg: c, log: c.Logger, snapshotPatience: snapshotPatience, snapshotYield: snapshotYield,
			slow: throttle.New(slowLines), ended: throttle.New(1), logAll: c.Logger.Enabled(context.Background(), slog.LevelDebug)},
		methods: map[string]*method{},
		codec:   transport.NewCodec(c.Logger, c.Metrics.bytesReceived, c.Metrics.bytesSent),
	}
	s.svc.running, s.cut = context.WithCancel(context.Background())
	s.finishers.New = func() any { return new(finisher) }
	s.svc.watchStreams.init()
	s.svc.ready = watch.NewReady()
	s.svc.deliveries = s.svc.newDeliveries()
	s.health = newHealthService(s.svc)
	var services []transport.Service
	for _, d := range append(s.svc.services(), s.health.service()) {
		services = append(services, s.serve(d))
	}
	for _, r := range transport.Reflection(services, lockpb.Files) {
		d := serviceDef{name: r.Name}
		for _, m := range r.Methods {
			d.methods = append(d.methods, endpoint{name: m.Name, clientStreams: m.ClientStreams, serverStreams: m.ServerStreams,
				stream: func(ss *serverStream) error { return m.Stream(ss) }})
		}
		services = append(services, s.serve(d))
	}
	s.inProcess = inprocess.New(inprocess.Options{Services: services, Codec: s.codec, MaxMessageBytes: MaxMessageBytes(c.MaxRequestBytes),
		Stats: c.Stats, Deliveries: s.svc.deliveries})
	s.transport = transport.NewServer(transport.Options{
		Services:             services,
		Codec:                s.codec,
		MaxMessageBytes:      MaxMessageBytes(c.MaxRequestBytes),
		MaxConcurrentStreams: c.MaxConcurrentStreams,
		KeepAliveMinTime:     c.KeepAliveMinTime,
		KeepAliveInterval:    c.KeepAliveInterval,
		KeepAliveTimeout:     c.KeepAliveTimeout,
		Stats:                c.Stats,
		CallMade:             c.CallMade,
		ConnEnded:            s.svc.logEnded,
		HTTP:                 c.HTTP,
		Logger:               c.Logger,
	})

	if c.Starter != nil {
		s.finished = s.runFinishers()
	}
	stop := make(chan struct{})
	s.stop = sync.OnceFunc(func() { close(stop) })
	s.watching.Go(func() { s.svc.watchLeader(stop, s.health.update) })
	s.watching.Go(func() { s.svc.wakeWatches(stop) })
	if c.Auth != nil {
		s.watching.Go(func() { s.svc.reviewAll(stop) })
	}
	return s, nil
}

// serve registers the methods of a service and returns it as the transport serves it: with everything that is common to
// all calls.
func (s *Server) serve(d serviceDef) transport.Service {
	out := transport.Service{Name: d.name}
	for _, e := range d.methods {
		full := "/" + d.name + "/" + e.name
		m := &method{methodMetrics: s.svc.cfg.Metrics.method(e.kind(), d.name, e.name), endpoint: e, rule: rules[full]}
		switch {
		case full == etcdserverpb.Maintenance_Status_FullMethodName, full == etcdserverpb.Maintenance_Snapshot_FullMethodName,
			strings.HasPrefix(d.name, "grpc."):
			m.forLearner = true
		}
		m.served = transport.Method{Name: e.name, ClientStreams: e.clientStreams, ServerStreams: e.serverStreams, NewRequest: e.newRequest, Free: e.free, Tag: m}
		if e.begin != nil {
			m.served.Begin = func(ctx context.Context, request any, p transport.Pending) (any, transport.Begun) {
				return s.begin(ctx, m, request, p)
			}
		}
		switch {
		case e.session != nil:
			m.served.Open = func(p transport.Peer) (transport.Session, error) { return s.openSession(m, p) }
		case e.stream != nil:
			m.served.Stream = func(ss transport.Stream) error { return s.serveStream(m, ss) }
		default:
			m.served.Unary = func(ctx context.Context, request any) (any, error) { return s.serveUnary(ctx, m, request) }
		}
		s.methods[full] = m
		out.Methods = append(out.Methods, m.served)
	}
	return out
}

// InProcess returns the caller of the services in this process. Its calls are rejected after the server has begun to stop.
func (s *Server) InProcess() *inprocess.Caller { return s.inProcess }

// Serve accepts connections until the listener fails or the server stops, which is no error. It may
// be called for several listeners, and closes them.
func (s *Server) Serve(l net.Listener) error { return s.transport.Serve(l) }

// EndStreams ends all open streams with the status of an error of kv.
func (s *Server) EndStreams(err error) { s.svc.streams.End(apierror.Status(err)) }

// Stop rejects new connections and calls, ends the streams and waits for the unary calls, until ctx ends; then
// it cancels them and waits for their handlers.
func (s *Server) Stop(ctx context.Context) {
	defer s.cut()
	defer context.AfterFunc(ctx, s.cut)()
	s.stop()
	s.watching.Wait()
	s.health.Shutdown()
	var calls sync.WaitGroup
	calls.Go(func() { s.inProcess.Stop(ctx) })
	calls.Go(func() { s.transport.Stop(ctx) })
	s.svc.streams.Stop()
	calls.Wait()
	if s.finished != nil {
		s.finished()
	}
}

// serveUnary runs a unary call with what is common to all of them: metrics, log, admission, credentials.
func (s *Server) serveUnary(ctx context.Context, m *method, req any) (resp any, err error) {
	m.started.Inc()
	m.received.Inc()
	start := time.Now()
	if s.svc.logAll {
		end := traced(ctx, m.fullName)
		defer func() { end(err) }()
	}
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, transport.Recovered(s.svc.log, m.fullName, p)
		}
		took := time.Since(start)
		m.ended(status.Code(err), took.Seconds())
		if err == nil {
			m.sent.Inc()
		}
		switch warn := s.svc.cfg.WarnUnary; {
		case warn > 0 && took > warn:
			s.svc.logSlowCall(ctx, m.fullName, req, resp, start, took, err)
		case s.svc.logAll:
			s.svc.logCall(ctx, slog.LevelDebug, m.fullName, req, resp, start, took, err, 0)
		}
	}()
	forLearner := m.forLearner || m.learnerAnswers != nil && m.learnerAnswers(req)
	if _, err := s.svc.admit(ctx, s.svc.cfg.Metrics.unary, forLearner); err != nil {
		return nil, err
	}
	if s.svc.cfg.Auth != nil {
		// Auth may be enabled before the call ends, or this member may not know yet that it is.
		ctx = s.svc.withCredentials(ctx)
	}
	if err := s.svc.authorize(ctx, &m.rule, req); err != nil {
		return nil, err
	}
	resp, err = m.unary(ctx, req)
	if generated, ok := resp.(proto.Message); ok && err == nil {
		return s.svc.deliveries.CountMessage(ctx, generated)
	}
	return resp, err
}

// serveStream is to streams what serveUnary is to unary calls.
func (s *Server) serveStream(m *method, ss transport.Stream) (err error) {
	m.started.Inc()
	start := time.Now()
	if s.svc.logAll {
		end := traced(ss.Context(), m.fullName)
		defer func() { end(err) }()
	}
	defer func() {
		if p := recover(); p != nil {
			err = transport.Recovered(s.svc.log, m.fullName, p)
		}
		m.ended(status.Code(err), time.Since(start).Seconds())
	}()
	needsLeader, err := s.svc.admit(ss.Context(), s.svc.cfg.Metrics.stream, m.forLearner)
	if err != nil {
		return err
	}
	ctx, leave, err := s.svc.streams.Join(ss.Context(), needsLeader)
	if err != nil {
		return err
	}
	defer leave()
	if s.svc.cfg.Auth != nil {
		// Auth may be enabled before the stream ends.
		ctx = s.svc.withCredentials(ctx)
	}
	if err := s.svc.authorize(ctx, &m.rule, nil); err != nil {
		return err
	}
	return m.stream(&serverStream{Stream: ss, m: m, ctx: ctx})
}
