package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"vigil/internal/edge/rpc/transport"
)

// counter counts nothing.
type counter struct{}

func (counter) Add(float64) {}

// serverStream is a transport.Stream as the generated handlers want it.
type serverStream struct{ transport.Stream }

func (s serverStream) SetHeader(md metadata.MD) error {
	return transport.SetHeader(s.Context(), md)
}
func (s serverStream) SendHeader(md metadata.MD) error {
	return transport.SetHeader(s.Context(), md)
}
func (s serverStream) SetTrailer(md metadata.MD) { _ = transport.SetTrailer(s.Context(), md) }

// unaryStream is what a unary handler sends metadata to.
type unaryStream struct{ ctx context.Context }

func (s unaryStream) Method() string                  { return "" }
func (s unaryStream) SetHeader(md metadata.MD) error  { return transport.SetHeader(s.ctx, md) }
func (s unaryStream) SendHeader(md metadata.MD) error { return transport.SetHeader(s.ctx, md) }
func (s unaryStream) SetTrailer(md metadata.MD) error { return transport.SetTrailer(s.ctx, md) }

// service returns a generated service for the transport.
func service(t *testing.T, d *grpc.ServiceDesc, server any) transport.Service {
	t.Helper()
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(d.ServiceName))
	if err != nil {
		t.Fatal(err)
	}
	out := transport.Service{Name: d.ServiceName}
	for _, m := range d.Methods {
		input := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(m.MethodName)).Input().FullName()
		kind, err := protoregistry.GlobalTypes.FindMessageByName(input)
		if err != nil {
			t.Fatal(err)
		}
		out.Methods = append(out.Methods, transport.Method{
			Name:       m.MethodName,
			NewRequest: func() any { return kind.New().Interface() },
			Unary: func(ctx context.Context, request any) (any, error) {
				return m.Handler(server,
					grpc.NewContextWithServerTransportStream(ctx, unaryStream{ctx}),
					func(into any) error {
						proto.Merge(into.(proto.Message), request.(proto.Message))
						return nil
					}, nil)
			},
		})
	}
	for _, s := range d.Streams {
		out.Methods = append(out.Methods, transport.Method{
			Name:          s.StreamName,
			ClientStreams: s.ClientStreams,
			ServerStreams: s.ServerStreams,
			Stream: func(stream transport.Stream) error {
				return s.Handler(server,
					serverStream{stream})
			},
		})
	}
	return out
}

// secureConn is a connection after its handshake, as package transport gets it.
type secureConn struct{ *tls.Conn }

// TLSState returns the result of the handshake.
func (c secureConn) TLSState() *tls.ConnectionState {
	state := c.ConnectionState()
	return &state
}

// secureListener completes handshakes before it returns connections.
type secureListener struct {
	net.Listener
	config *tls.Config
}

func (l secureListener) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := tls.Server(nc, l.config)
		if c.Handshake() == nil {
			return secureConn{c}, nil
		}
		c.Close()
	}
}

// server is a server with the test service.
type server struct {
	addr string
	ca   *x509.Certificate // nil without TLS
}

// certified is the name in the certificate.
const certified = "example.com"

// start starts a server.
func start(t *testing.T, secure bool) server {
	t.Helper()
	s := transport.NewServer(transport.Options{
		Services: []transport.Service{service(t, &testgrpc.TestService_ServiceDesc,
			interop.NewTestServer())},
		Codec: transport.NewCodec(slog.New(slog.DiscardHandler),
			counter{}, counter{}),
		MaxMessageBytes:      4 << 20,
		MaxConcurrentStreams: 1<<32 - 1,
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	out := server{addr: l.Addr().String()}
	if secure {
		web := httptest.NewUnstartedServer(nil) // it has a certificate
		web.StartTLS()
		defer web.Close()
		out.ca = web.Certificate()
		l = secureListener{l,
			&tls.Config{Certificates: web.TLS.Certificates, NextProtos: []string{"h2"}}}
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.Stop(ctx)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return out
}

// dial returns a connection to the server.
func (s server) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	creds := insecure.NewCredentials()
	if s.ca != nil {
		pool := x509.NewCertPool()
		pool.AddCert(s.ca)
		creds = credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: certified})
	}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// withAndWithoutTLS runs a test against a server of each kind.
func withAndWithoutTLS(t *testing.T, test func(*testing.T, server)) {
	t.Run("plain", func(t *testing.T) { test(t, start(t, false)) })
	t.Run("TLS", func(t *testing.T) { test(t, start(t, true)) })
}

// TestCases: the cases of gRPC's interoperability tests that need no authentication of a cloud,
// with the client of grpc-go. A case that fails ends the process, with a line that says why.
func TestCases(t *testing.T) {
	withAndWithoutTLS(t, func(t *testing.T, s server) {
		conn := s.dial(t)
		tc := testgrpc.NewTestServiceClient(conn)
		for _, c := range []struct {
			name string
			run  func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)
			args []grpc.CallOption
		}{
			{"empty_unary", interop.DoEmptyUnaryCall, nil},
			{"large_unary", interop.DoLargeUnaryCall, nil},
			{"client_compressed_unary", interop.DoLargeUnaryCall,
				[]grpc.CallOption{grpc.UseCompressor(gzip.Name)}},
			{"client_streaming", interop.DoClientStreaming, nil},
			{"client_compressed_streaming", interop.DoClientStreaming,
				[]grpc.CallOption{grpc.UseCompressor(gzip.Name)}},
			{"server_streaming", interop.DoServerStreaming, nil},
			{"ping_pong", interop.DoPingPong, nil},
			{"empty_stream", interop.DoEmptyStream, nil},
			{"timeout_on_sleeping_server", interop.DoTimeoutOnSleepingServer, nil},
			{"cancel_after_begin", interop.DoCancelAfterBegin, nil},
			{"cancel_after_first_response", interop.DoCancelAfterFirstResponse, nil},
			{"custom_metadata", interop.DoCustomMetadata, nil},
			{"status_code_and_message", interop.DoStatusCodeAndMessage, nil},
			{"special_status_message", interop.DoSpecialStatusMessage, nil},
		} {
			t.Run(c.name, func(t *testing.T) { c.run(t.Context(), tc, c.args...) })
		}
		t.Run("unimplemented_method",
			func(t *testing.T) { interop.DoUnimplementedMethod(t.Context(), conn) })
		t.Run("unimplemented_service", func(t *testing.T) {
			interop.DoUnimplementedService(t.Context(),
				testgrpc.NewUnimplementedServiceClient(conn))
		})
	})
}
