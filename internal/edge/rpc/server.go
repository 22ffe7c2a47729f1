package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"vigil/internal/edge/rpc/wire"
	"vigil/internal/throttle"
)

// Server serves the API on connections. Its methods are safe for concurrent use.
type Server struct {
	svc     *service
	grpc    *grpc.Server
	health  *healthService
	methods map[string]*method        // by full name; not changed after NewServer
	inside  map[string]implementation // likewise
	in      *Inside
	codec   *codec

	door     door
	stop     func() // ends the goroutines that watch for a leader and for changes of users
	watching sync.WaitGroup
}

// connectionTimeout bounds the handshake of HTTP/2, which is the client's settings.
const connectionTimeout = 10 * time.Second

// method is what a server knows about one of its methods.
type method struct {
	*methodMetrics
	forLearner bool
	rule       access
}

// NewServer makes a server. It has goroutines from now on: Stop must be called.
func NewServer(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("rpc: %w", err)
	}
	c = c.WithDefaults()
	s := &Server{
		svc: &service{cfg: c, log: c.Logger, streams: newStreams(), sendPatience: defaultPatience, snapshotPatience: snapshotPatience, snapshotYield: snapshotYield,
			slow: throttle.New(slowLines), tellAll: c.Logger.Enabled(context.Background(), slog.LevelDebug)},
		methods: map[string]*method{},
		inside:  map[string]implementation{},
	}
	s.codec = &codec{metrics: c.Metrics, log: s.svc, generated: encoding.GetCodecV2(protocodec.Name)}
	s.in = newInside(s)
	s.svc.guards.init()
	s.health = newHealthService(s.svc)
	s.grpc = grpc.NewServer(s.options()...)
	s.RegisterService(s.kvDesc(), nil)
	s.RegisterService(s.watchDesc(), nil)
	etcdserverpb.RegisterMaintenanceServer(s, &maintenance{svc: s.svc})
	etcdserverpb.RegisterClusterServer(s, &clusterServer{svc: s.svc})
	if c.Leases != nil {
		s.RegisterService(s.leaseDesc(), &leaseServer{svc: s.svc})
		s.RegisterService(s.svc.lockDesc(), nil)
		s.RegisterService(s.svc.electionDesc(), nil)
	}
	if c.Auth != nil {
		etcdserverpb.RegisterAuthServer(s, &authServer{svc: s.svc})
	}
	grpc_health_v1.RegisterHealthServer(s, s.health)
	s.registerReflection()
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			s.method(service, m.Name, m.IsClientStream, m.IsServerStream)
		}
	}

	stop := make(chan struct{})
	s.stop = sync.OnceFunc(func() { close(stop) })
	s.watching.Go(func() { s.svc.watchLeader(stop, s.health.update) })
	if c.Auth != nil {
		s.watching.Go(func() { s.svc.reviewAll(stop) })
	}
	return s, nil
}

// streamWorkers is how many goroutines are kept to run handlers on. A goroutine made for a call first
// has to grow its stack, which is a fifth of what a call costs. Calls beyond that number get a
// goroutine of their own.
const streamWorkers = 512

func (s *Server) options() []grpc.ServerOption {
	c := &s.svc.cfg
	opts := []grpc.ServerOption{
		grpc.Creds(handshaken{}),
		grpc.ForceServerCodecV2(s.codec),
		grpc.UnaryInterceptor(s.interceptUnary),
		grpc.StreamInterceptor(s.interceptStream),
		grpc.MaxRecvMsgSize(MaxMessageBytes(c.MaxRequestBytes)),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(c.MaxConcurrentStreams),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.WaitForHandlers(true),
		// A client that sends the preface and nothing after it is let go.
		grpc.ConnectionTimeout(connectionTimeout),
	}
	if c.Stats != nil {
		opts = append(opts, grpc.StatsHandler(c.Stats))
	}
	if c.KeepAliveMinTime > 0 {
		opts = append(opts, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: c.KeepAliveMinTime}))
	}
	if c.KeepAliveInterval > 0 && c.KeepAliveTimeout > 0 {
		opts = append(opts, grpc.KeepaliveParams(keepalive.ServerParameters{Time: c.KeepAliveInterval, Timeout: c.KeepAliveTimeout}))
	}
	return opts
}

// Serve accepts connections until the listener fails or the server stops, which is no error. It may
// be called for several listeners, and closes them.
func (s *Server) Serve(l net.Listener) error {
	if !s.door.open(l) {
		return l.Close()
	}
	err := s.grpc.Serve(listener{l, s.svc, &s.door})
	if s.door.close(l) || err == grpc.ErrServerStopped {
		return nil
	}
	return err
}

// EndStreams ends the streams that are open, with the status that stands for an error of kv.
func (s *Server) EndStreams(err error) { s.svc.streams.end(statusOf(err)) }

// Stop refuses new connections and calls, ends the streams and waits for the unary calls, until ctx ends; then
// it cancels them and waits for their handlers.
func (s *Server) Stop(ctx context.Context) {
	s.stop()
	s.watching.Wait()
	s.health.Shutdown()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var inside sync.WaitGroup
		inside.Go(func() { s.in.shut(ctx) })
		s.door.shut(ctx)
		s.grpc.GracefulStop()
		inside.Wait()
	}()
	s.svc.streams.stop()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
}

func (s *Server) method(service, name string, clientStream, serverStream bool) *method {
	full := "/" + service + "/" + name
	if m, ok := s.methods[full]; ok {
		return m
	}
	kind := "unary"
	switch {
	case clientStream && serverStream:
		kind = "bidi_stream"
	case clientStream:
		kind = "client_stream"
	case serverStream:
		kind = "server_stream"
	}
	m := &method{methodMetrics: s.svc.cfg.Metrics.method(kind, service, name), rule: rules[full]}
	switch {
	case full == etcdserverpb.Maintenance_Status_FullMethodName, full == etcdserverpb.Maintenance_Snapshot_FullMethodName,
		strings.HasPrefix(service, "grpc."):
		m.forLearner = true
	}
	s.methods[full] = m
	return m
}

// unary runs what is common to all unary calls around one.
func (s *Server) unary(ctx context.Context, m *method, req any, forLearner bool, call func(context.Context) (any, error)) (resp any, err error) {
	m.started.Inc()
	m.received.Inc()
	start := time.Now()
	if s.svc.tellAll {
		end := traced(ctx, m.name)
		defer func() { end(err) }()
	}
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, s.svc.panicked(m.name, p)
		}
		took := time.Since(start)
		m.ended(status.Code(err), took.Seconds())
		if err == nil {
			m.sent.Inc()
		}
		switch warn := s.svc.cfg.WarnUnary; {
		case warn > 0 && took > warn:
			s.svc.tellSlow(ctx, m.name, req, resp, start, took, err)
		case s.svc.tellAll:
			s.svc.tell(ctx, slog.LevelDebug, m.name, req, resp, start, took, err, 0)
		}
	}()
	note(ctx)
	if _, err := s.svc.admit(ctx, s.svc.cfg.Metrics.unary, forLearner); err != nil {
		return nil, err
	}
	if s.svc.enabled() {
		ctx = s.svc.withCredentials(ctx)
	}
	if err := s.svc.authorize(ctx, &m.rule, req); err != nil {
		return nil, err
	}
	return call(ctx)
}

func (s *Server) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	m := s.methods[info.FullMethod]
	return s.unary(ctx, m, req, m.forLearner, func(ctx context.Context) (any, error) {
		res, err := handler(ctx, req)
		if res, ok := res.(proto.Message); ok && err == nil {
			return s.svc.weighGenerated(ctx, res)
		}
		return res, err
	})
}

// interceptStream is to all streams what unary is to unary calls.
func (s *Server) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	m := s.methods[info.FullMethod]
	m.started.Inc()
	start := time.Now()
	if s.svc.tellAll {
		end := traced(ss.Context(), m.name)
		defer func() { end(err) }()
	}
	defer func() {
		if p := recover(); p != nil {
			err = s.svc.panicked(m.name, p)
		}
		m.ended(status.Code(err), time.Since(start).Seconds())
	}()
	note(ss.Context())
	needsLeader, err := s.svc.admit(ss.Context(), s.svc.cfg.Metrics.stream, m.forLearner)
	if err != nil {
		return err
	}
	ctx, leave, err := s.svc.streams.join(ss.Context(), needsLeader)
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
	return handler(srv, &serverStream{ServerStream: ss, m: m, ctx: ctx, bytesSent: s.svc.cfg.Metrics.bytesSent})
}

// serverStream counts messages and has a context that the server can end.
type serverStream struct {
	grpc.ServerStream
	m         *method
	ctx       context.Context
	bytesSent prometheus.Counter
}

func (ss *serverStream) Context() context.Context { return ss.ctx }

func (ss *serverStream) SendMsg(m any) error {
	err := ss.ServerStream.SendMsg(m)
	if err == nil {
		ss.m.sent.Inc()
	}
	return err
}

func (ss *serverStream) RecvMsg(m any) error {
	err := ss.ServerStream.RecvMsg(m)
	if err == nil {
		ss.m.received.Inc()
	}
	return err
}

// Client, Recv and Send make a serverStream a watchConn.

func (ss *serverStream) Client() string { return remote(ss.ctx) }

func (ss *serverStream) Recv(r *wire.WatchRequest) error { return ss.RecvMsg(r) }

func (ss *serverStream) Send(list []wire.WatchResponse) error {
	sent, bytes := 0, 0
	defer func() {
		ss.m.sent.Add(float64(sent))
		ss.bytesSent.Add(float64(bytes))
	}()
	for len(list) > 0 {
		messages := encodeWatch(list)
		for i := range messages {
			n := messages[i].buffers.Len() // sending frees them
			if err := ss.ServerStream.SendMsg(&messages[i]); err != nil {
				return err
			}
			sent++
			bytes += n
		}
		list = list[len(messages):]
	}
	return nil
}

func remote(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// panicked logs what a handler panicked with and returns the error for the client.
func (s *service) panicked(where string, p any) error {
	s.log.Error("panic in a request handler", "method", where, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return errPanic
}

// unaryMethod describes a method whose messages are those of package wire.
func unaryMethod[T any, P interface {
	*T
	wire.Decoder
}](s *Server, name string, forLearner func(P) bool, call func(context.Context, P) (wire.Encoder, error)) grpc.MethodDesc {
	m := s.method(etcdserverpb.KV_ServiceDesc.ServiceName, name, false, false)
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		req := P(new(T))
		if txn, ok := any(req).(*wire.TxnRequest); ok {
			txn.LimitOps(s.svc.cfg.MaxTxnOps)
		}
		if err := decode(req); err != nil {
			return nil, err
		}
		return s.unary(ctx, m, req, forLearner(req), func(ctx context.Context) (any, error) { return call(ctx, req) })
	}}
}

// generatedMethod is the handler of a method whose request is a generated message, and whose answer may be any that
// the codec knows.
func generatedMethod[T any, P interface {
	*T
	protoreflect.ProtoMessage
}](s *Server, service, name string, call func(context.Context, P) (any, error)) grpc.MethodHandler {
	m := s.method(service, name, false, false)
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		req := P(new(T))
		if err := decode(req); err != nil {
			return nil, err
		}
		return s.unary(ctx, m, req, m.forLearner, func(ctx context.Context) (any, error) { return call(ctx, req) })
	}
}

func never[T any](T) bool { return false }

func (s *Server) kvDesc() *grpc.ServiceDesc {
	svc := s.svc
	return &grpc.ServiceDesc{
		ServiceName: etcdserverpb.KV_ServiceDesc.ServiceName,
		Metadata:    etcdserverpb.KV_ServiceDesc.Metadata,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			unaryMethod(s, "Range", func(r *wire.RangeRequest) bool { return r.Serializable }, svc.kvRange),
			unaryMethod(s, "Put", never, svc.kvPut),
			unaryMethod(s, "DeleteRange", never, svc.kvDeleteRange),
			unaryMethod(s, "Txn", never, svc.kvTxn),
			unaryMethod(s, "Compact", never, svc.kvCompact),
		},
		Streams: []grpc.StreamDesc{{StreamName: "RangeStream", ServerStreams: true, Handler: func(_ any, ss grpc.ServerStream) error {
			var r wire.RangeRequest
			if err := ss.RecvMsg(&r); err != nil {
				return err
			}
			return svc.kvRangeStream(ss.Context(), &r, func(m wire.Encoder) error { return ss.SendMsg(m) })
		}}},
	}
}

func (s *Server) watchDesc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: etcdserverpb.Watch_ServiceDesc.ServiceName,
		Metadata:    etcdserverpb.Watch_ServiceDesc.Metadata,
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, ClientStreams: true, Handler: func(_ any, ss grpc.ServerStream) error {
			return s.svc.watch(ss.(*serverStream))
		}}},
	}
}

// maintenance answers Unimplemented to what it does not define.
type maintenance struct {
	etcdserverpb.UnimplementedMaintenanceServer
	svc *service
}

func (m *maintenance) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return m.svc.status(), nil
}

// codec reads and writes the messages of package wire by their own methods and all others as
// grpc-go does. A panic in one is an error of the call: grpc-go calls the codec outside of handlers.
type codec struct {
	metrics   *Metrics
	log       *service
	generated encoding.CodecV2
}

// Name implements encoding.CodecV2.
func (c *codec) Name() string { return protocodec.Name }

// Marshal implements encoding.CodecV2.
func (c *codec) Marshal(v any) (out mem.BufferSlice, err error) {
	if m, ok := v.(*watchMessage); ok {
		return m.buffers, nil // who made it counts the bytes
	}
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, c.log.panicked(fmt.Sprintf("encoding %T", v), p)
		}
		c.metrics.bytesSent.Add(float64(out.Len()))
	}()
	switch v := v.(type) {
	case *heavy:
		return counted(v), nil
	case wire.Long:
		if list := v.Pieces(nil); list != nil {
			return pieces(list), nil
		}
		return whole(v), nil
	case wire.Encoder:
		return whole(v), nil
	case proto.Message:
		return message(v)
	}
	return c.generated.Marshal(v)
}

// Unmarshal implements encoding.CodecV2. What is decoded may alias the data only if nobody reuses
// it: buffers from a pool are copied, others are left to the garbage collector by the transport.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = c.log.panicked(fmt.Sprintf("decoding %T", v), p)
		}
	}()
	c.metrics.bytesReceived.Add(float64(data.Len()))
	m, ok := v.(wire.Decoder)
	if !ok {
		return c.generated.Unmarshal(data, v)
	}
	if len(data) == 1 {
		if b, ok := data[0].(mem.SliceBuffer); ok {
			return m.Decode(b)
		}
	}
	return m.Decode(data.Materialize())
}
