package interop

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"slices"
	"sync"
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

// echoes are the metadata that handlers have sent back. The transport sends none: no service of etcd has any.
type echoes struct {
	mu  sync.Mutex
	mds []metadata.MD
}

func (e *echoes) add(md metadata.MD) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mds = append(e.mds, md)
	return nil
}

// serverStream is a transport.Stream as the generated handlers want it. It also is a grpc.ServerTransportStream, by which unary
// handlers send metadata.
type serverStream struct {
	transport.Stream
	*echoes
}

func (s serverStream) SetHeader(md metadata.MD) error  { return s.add(md) }
func (s serverStream) SendHeader(md metadata.MD) error { return s.add(md) }
func (s serverStream) SetTrailer(md metadata.MD)       { _ = s.add(md) }

// unaryStream is what a unary handler sends metadata to.
type unaryStream struct{ *echoes }

func (s unaryStream) Method() string                  { return "" }
func (s unaryStream) SetHeader(md metadata.MD) error  { return s.add(md) }
func (s unaryStream) SendHeader(md metadata.MD) error { return s.add(md) }
func (s unaryStream) SetTrailer(md metadata.MD) error { return s.add(md) }

// service returns a generated service for the transport.
func service(t *testing.T, d *grpc.ServiceDesc, server any, e *echoes) transport.Service {
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
				ctx = grpc.NewContextWithServerTransportStream(ctx, unaryStream{e})
				return m.Handler(server, ctx, func(into any) error {
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
			Stream:        func(stream transport.Stream) error { return s.Handler(server, serverStream{stream, e}) },
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

// start starts a server with the test service and returns a connection to it.
func start(t *testing.T, own, secure bool) (*grpc.ClientConn, *echoes) {
	t.Helper()
	e := &echoes{}
	s := transport.NewServer(transport.Options{
		Services:             []transport.Service{service(t, &testgrpc.TestService_ServiceDesc, interop.NewTestServer(), e)},
		Codec:                transport.NewCodec(slog.New(slog.DiscardHandler), counter{}, counter{}),
		MaxMessageBytes:      4 << 20,
		MaxConcurrentStreams: 1<<32 - 1,
		Own:                  own,
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	creds := insecure.NewCredentials()
	addr := l.Addr().String()
	if secure {
		web := httptest.NewUnstartedServer(nil) // it has a certificate
		web.StartTLS()
		defer web.Close()
		pool := x509.NewCertPool()
		pool.AddCert(web.Certificate())
		creds = credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "example.com"})
		l = secureListener{l, &tls.Config{Certificates: web.TLS.Certificates, NextProtos: []string{"h2"}}}
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.Stop(ctx)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return conn, e
}

// TestCases: the cases of gRPC's interoperability tests that need no authentication of a cloud. A case that fails ends the
// process, with a line that says why.
func TestCases(t *testing.T) {
	for _, row := range []struct {
		name        string
		own, secure bool
	}{{"own", true, false}, {"own, TLS", true, true}, {"grpc-go", false, false}, {"grpc-go, TLS", false, true}} {
		t.Run(row.name, func(t *testing.T) {
			conn, e := start(t, row.own, row.secure)
			tc := testgrpc.NewTestServiceClient(conn)
			for _, c := range []struct {
				name string
				run  func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)
				args []grpc.CallOption
			}{
				{"empty_unary", interop.DoEmptyUnaryCall, nil},
				{"large_unary", interop.DoLargeUnaryCall, nil},
				{"client_compressed_unary", interop.DoLargeUnaryCall, []grpc.CallOption{grpc.UseCompressor(gzip.Name)}},
				{"client_streaming", interop.DoClientStreaming, nil},
				{"client_compressed_streaming", interop.DoClientStreaming, []grpc.CallOption{grpc.UseCompressor(gzip.Name)}},
				{"server_streaming", interop.DoServerStreaming, nil},
				{"ping_pong", interop.DoPingPong, nil},
				{"empty_stream", interop.DoEmptyStream, nil},
				{"timeout_on_sleeping_server", interop.DoTimeoutOnSleepingServer, nil},
				{"cancel_after_begin", interop.DoCancelAfterBegin, nil},
				{"cancel_after_first_response", interop.DoCancelAfterFirstResponse, nil},
				{"status_code_and_message", interop.DoStatusCodeAndMessage, nil},
				{"special_status_message", interop.DoSpecialStatusMessage, nil},
			} {
				t.Run(c.name, func(t *testing.T) { c.run(t.Context(), tc, c.args...) })
			}
			t.Run("unimplemented_method", func(t *testing.T) { interop.DoUnimplementedMethod(t.Context(), conn) })
			t.Run("unimplemented_service", func(t *testing.T) {
				interop.DoUnimplementedService(t.Context(), testgrpc.NewUnimplementedServiceClient(conn))
			})
			t.Run("custom_metadata", func(t *testing.T) { customMetadata(t, tc, e) })
		})
	}
}

// customMetadata is the half of the case custom_metadata that a client sends: handlers receive the text and the bytes. They send
// them back to echoes.
func customMetadata(t *testing.T, tc testgrpc.TestServiceClient, e *echoes) {
	const initial, trailing = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
	word, bytesOf := "test_initial_metadata_value", string([]byte{0x0a, 0x0b, 0x0a, 0x0b, 0x0a, 0x0b})
	ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(initial, word, trailing, bytesOf))
	check := func(kind string) {
		t.Helper()
		e.mu.Lock()
		defer e.mu.Unlock()
		for key, want := range map[string]string{initial: word, trailing: bytesOf} {
			if !slices.ContainsFunc(e.mds, func(md metadata.MD) bool { return slices.Equal(md[key], []string{want}) }) {
				t.Errorf("%s: the handler has not received %s: %q", kind, key, e.mds)
			}
		}
		e.mds = nil
	}
	request := &testgrpc.SimpleRequest{ResponseSize: 1, Payload: &testgrpc.Payload{Body: []byte{0}}}
	if answer, err := tc.UnaryCall(ctx, request); err != nil || !bytes.Equal(answer.GetPayload().GetBody(), make([]byte, 1)) {
		t.Fatalf("%v, %v", answer, err)
	}
	check("unary")
	stream, err := tc.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}, Payload: request.Payload}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Fatal(err)
	}
	check("stream")
}
