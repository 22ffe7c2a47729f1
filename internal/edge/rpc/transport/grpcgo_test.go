package transport

import (
	"context"
	"errors"
	"math"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// grpcServer serves methods with grpc-go. It is the judge of frames and answers: tests compare
// Server with it.
type grpcServer struct {
	grpc      *grpc.Server
	callMade  func(net.Conn)
	listeners listeners
}

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
			desc.Streams = append(desc.Streams,
				grpc.StreamDesc{StreamName: m.Name, ServerStreams: m.ServerStreams,
					ClientStreams: m.ClientStreams,
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
			Handler: func(_ any, ctx context.Context, decode func(any) error,
				_ grpc.UnaryServerInterceptor) (any, error) {
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

// Serve implements testServer.
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

// Stop implements testServer.
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

// handshaken are the credentials of a server whose listeners have completed the TLS handshake, if
// there is one. The AuthInfo of a peer is credentials.TLSInfo then, and plainInfo without TLS.
type handshaken struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (handshaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	inner := c
	if own, ok := c.(*conn); ok {
		inner = own.Conn
	}
	if s, ok := inner.(secured); ok {
		return c, credentials.TLSInfo{State: *s.TLSState(),
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
	}
	return c, plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers")
}

// Info implements credentials.TransportCredentials.
func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (handshaken) Clone() credentials.TransportCredentials { return handshaken{} }

// OverrideServerName implements credentials.TransportCredentials.
func (handshaken) OverrideServerName(string) error { return nil }

// setHeader is SetHeader for calls of both servers.
func setHeader(ctx context.Context, md metadata.MD) error {
	if _, ok := ctx.Value(callKey{}).(*call); ok {
		return SetHeader(ctx, md)
	}
	return grpc.SetHeader(ctx, md)
}

// setTrailer is SetTrailer for calls of both servers.
func setTrailer(ctx context.Context, md metadata.MD) error {
	if _, ok := ctx.Value(callKey{}).(*call); ok {
		return SetTrailer(ctx, md)
	}
	return grpc.SetTrailer(ctx, md)
}

// sendUncompressed is SendUncompressed for calls of both servers.
func sendUncompressed(ctx context.Context) {
	SendUncompressed(ctx)
	_ = grpc.SetSendCompressor(ctx, encoding.Identity) // fails for calls of Server
}

// noteCall runs firstCall for the first call of a connection.
func noteCall(ctx context.Context) {
	if c := ClientOf(ctx); c != nil {
		c.noteCall()
	}
}
