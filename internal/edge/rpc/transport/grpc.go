package transport

import (
	"context"
	"log/slog"
	"math"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/reflect/protodesc"
)

// StatsHandler is notified of the beginning and the end of each call.
type StatsHandler = stats.Handler

// Options are what a server serves, and how.
type Options struct {
	Services []Service
	Codec    *Codec
	// MaxMessageBytes is the largest message that is received.
	MaxMessageBytes int
	// MaxConcurrentStreams is the largest number of concurrent calls on a connection.
	MaxConcurrentStreams uint32
	// KeepAliveMinTime is the shortest interval of a client's pings. The server pings a connection that was idle for
	// KeepAliveInterval and waits KeepAliveTimeout for the answer. Values that are not positive mean the choice of
	// the transport.
	KeepAliveMinTime, KeepAliveInterval, KeepAliveTimeout time.Duration
	// Stats may be nil.
	Stats StatsHandler
	// CallMade, if set, receives each connection on which a client makes a call, once.
	CallMade func(net.Conn)
	// ConnEnded, if set, receives the address of each client whose connection the server has ended because of what the client
	// has done, and the reason. grpc-go does not report it.
	ConnEnded func(client net.Addr, reason error)
	// Own selects the server of this module instead of that of grpc-go.
	Own bool
	// HTTP serves requests that are not gRPC, if it is set. grpc-go's server rejects them.
	HTTP http.Handler
	// Logger is required with HTTP.
	Logger *slog.Logger
}

// Server serves methods over HTTP/2. Its methods are safe for concurrent use.
type Server interface {
	// Serve accepts connections until the listener fails or the server stops, which is no error. It may be called for
	// several listeners, and closes them.
	Serve(net.Listener) error
	// Stop rejects new connections and calls and waits for the handlers, until ctx ends; then it cancels the calls and waits
	// for their handlers.
	Stop(ctx context.Context)
}

// NewServer makes a server.
func NewServer(o Options) Server {
	if o.Own {
		return newOwnServer(o)
	}
	return newGRPCServer(o)
}

// grpcServer serves methods with grpc-go.
type grpcServer struct {
	grpc      *grpc.Server
	callMade  func(net.Conn)
	listeners listeners
}

const (
	// connectionTimeout bounds the handshake of HTTP/2, which is the client's settings.
	connectionTimeout = 10 * time.Second
	// streamWorkers is how many goroutines are kept to run handlers on. A goroutine made for a call first has to grow
	// its stack, which is a fifth of what a call costs. Calls beyond that number get a goroutine of their own.
	streamWorkers = 512
)

func newGRPCServer(o Options) *grpcServer {
	opts := []grpc.ServerOption{
		grpc.Creds(handshaken{}),
		grpc.ForceServerCodecV2(o.Codec),
		grpc.MaxRecvMsgSize(o.MaxMessageBytes),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(o.MaxConcurrentStreams),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(connectionTimeout),
	}
	if o.Stats != nil {
		opts = append(opts, grpc.StatsHandler(o.Stats))
	}
	if o.KeepAliveMinTime > 0 {
		opts = append(opts, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: o.KeepAliveMinTime}))
	}
	if o.KeepAliveInterval > 0 && o.KeepAliveTimeout > 0 {
		opts = append(opts, grpc.KeepaliveParams(keepalive.ServerParameters{Time: o.KeepAliveInterval, Timeout: o.KeepAliveTimeout}))
	}
	s := &grpcServer{grpc: grpc.NewServer(opts...), callMade: o.CallMade}
	for i := range o.Services {
		s.grpc.RegisterService(describe(&o.Services[i]), nil)
	}
	return s
}

// describe returns a service in the form of grpc-go.
func describe(svc *Service) *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{ServiceName: svc.Name, HandlerType: (*any)(nil)}
	for i := range svc.Methods {
		m := &svc.Methods[i]
		if m.Stream != nil || m.Open != nil {
			desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: m.Name, ServerStreams: m.ServerStreams, ClientStreams: m.ClientStreams,
				Handler: func(_ any, ss grpc.ServerStream) error {
					noteCall(ss.Context())
					if m.Open != nil {
						return ServeSession(ss, m)
					}
					return m.Stream(ss)
				}})
			continue
		}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: m.Name,
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				request := m.NewRequest()
				if err := decode(request); err != nil {
					return nil, err
				}
				noteCall(ctx)
				return m.Unary(ctx, request)
			}})
	}
	return desc
}

// Serve implements Server.
func (s *grpcServer) Serve(l net.Listener) error {
	if !s.listeners.add(l) {
		return l.Close()
	}
	err := s.grpc.Serve(listener{l, s})
	if s.listeners.remove(l) || err == grpc.ErrServerStopped {
		return nil
	}
	return err
}

// Stop implements Server.
func (s *grpcServer) Stop(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.listeners.close(ctx)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
}

// SendUncompressed disables compression of the answers of a call. grpc-go compresses into memory of its own, and returns
// lent memory before the compressed copy is sent. A stream must call it before its first answer.
func SendUncompressed(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		if !c.headerSent {
			c.makeSpecial().sent = encoding.Identity
		}
		return
	}
	_ = grpc.SetSendCompressor(ctx, encoding.Identity) // fails for calls made in this process, which are not compressed
}

// SetHeader adds metadata to the header of the answer to a call. It must be called before the first answer, by the goroutine that sends.
func SetHeader(ctx context.Context, md metadata.MD) error {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.setHeader(md)
	}
	return grpc.SetHeader(ctx, md)
}

// SetTrailer adds metadata to the trailer of the answer to a call. It must be called by the goroutine that sends.
func SetTrailer(ctx context.Context, md metadata.MD) error {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.setTrailer(md)
		return nil
	}
	return grpc.SetTrailer(ctx, md)
}

// ReportCall notifies a handler of a call that is made in this process; the returned function reports its end.
func ReportCall(h StatsHandler, ctx context.Context, fullMethod string, m *Method) (context.Context, func(error)) {
	if h == nil {
		return ctx, func(error) {}
	}
	ctx = h.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: fullMethod})
	began := &stats.Begin{BeginTime: time.Now(), IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams}
	h.HandleRPC(ctx, began)
	return ctx, func(err error) {
		h.HandleRPC(ctx, &stats.End{BeginTime: began.BeginTime, EndTime: time.Now(), Error: err})
	}
}

// Reflection returns the services by which clients ask for the given services and themselves, in both versions of the
// protocol that are in use.
func Reflection(services []Service, descriptors protodesc.Resolver) []Service {
	const method = "ServerReflectionInfo"
	names := serviceNames{grpc_reflection_v1.ServerReflection_ServiceDesc.ServiceName: {}, grpc_reflection_v1alpha.ServerReflection_ServiceDesc.ServiceName: {}}
	for _, s := range services {
		names[s.Name] = grpc.ServiceInfo{}
	}
	o := reflection.ServerOptions{Services: names, DescriptorResolver: descriptors}
	v1, v1alpha := reflection.NewServerV1(o), reflection.NewServer(o)
	service := func(name string, serve func(Stream) error) Service {
		return Service{name, []Method{{Name: method, ClientStreams: true, ServerStreams: true, Stream: serve}}}
	}
	return []Service{
		service(grpc_reflection_v1.ServerReflection_ServiceDesc.ServiceName, bidirectional(v1.ServerReflectionInfo)),
		service(grpc_reflection_v1alpha.ServerReflection_ServiceDesc.ServiceName, bidirectional(v1alpha.ServerReflectionInfo)),
	}
}

// bidirectional returns a handler in the form of generated code as one of a Method.
func bidirectional[Request, Response any](serve func(grpc.BidiStreamingServer[Request, Response]) error) func(Stream) error {
	return func(s Stream) error { return serve(AsGenerated[Request, Response](s)) }
}

// AsGenerated returns a stream in the form in which generated code wants it. A header is sent with the first message.
func AsGenerated[Request, Response any](s Stream) *grpc.GenericServerStream[Request, Response] {
	return &grpc.GenericServerStream[Request, Response]{ServerStream: generatedStream{s}}
}

// generatedStream is a Stream as grpc.ServerStream.
type generatedStream struct{ Stream }

func (s generatedStream) SetHeader(md metadata.MD) error  { return SetHeader(s.Context(), md) }
func (s generatedStream) SendHeader(md metadata.MD) error { return SetHeader(s.Context(), md) }
func (s generatedStream) SetTrailer(md metadata.MD)       { _ = SetTrailer(s.Context(), md) }

// serviceNames is the list of services as package reflection wants it, without methods, which it does not use.
type serviceNames map[string]grpc.ServiceInfo

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (n serviceNames) GetServiceInfo() map[string]grpc.ServiceInfo { return n }
