package rpc

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/store/ration"
)

// InProcess calls the services in this process, without a connection. The number of calls is not limited, and answers are
// not copied. Messages are encoded; the metadata of a call are the outgoing ones of its context.
type InProcess struct {
	s *Server

	mu struct {
		sync.Mutex
		stopped bool
		calls   sync.WaitGroup
	}
	ctx  context.Context // ends calls that take too long when the server stops
	stop context.CancelFunc
}

// InProcess returns the caller of the services in this process. Its calls are rejected after the server has begun to stop.
func (s *Server) InProcess() *InProcess { return s.inProcess }

func newInProcess(s *Server) *InProcess {
	p := &InProcess{s: s}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// gatewayAddr is the address of clients of the gateway in logs and lists of watchers.
type gatewayAddr struct{}

func (gatewayAddr) Network() string { return "inside" }
func (gatewayAddr) String() string  { return "gateway" }

type readerKey struct{}

// reader receives the answers of calls.
type reader struct {
	client *transport.Client
	addr   net.Addr
	tls    *tls.ConnectionState // of the connection that identifies the caller; nil if none does
	origin string               // address of the client, if addr is not
}

// WithReader returns a context for calls whose answers are sent on to a reader at the address remote. cut is called if the reader does not take a
// large answer while others wait for its memory.
func (p *InProcess) WithReader(ctx context.Context, remote string, cut func()) context.Context {
	return context.WithValue(ctx, readerKey{}, reader{client: transport.NewReader(cut), addr: gatewayAddr{}, origin: remote})
}

// WithConnection is WithReader for calls with the identity of a connection: a verified certificate of state names the user, as on
// a connection of gRPC. addr is the address of the caller in logs and lists of watchers; state is nil without TLS.
func (p *InProcess) WithConnection(ctx context.Context, addr net.Addr, state *tls.ConnectionState, cut func()) context.Context {
	return context.WithValue(ctx, readerKey{}, reader{client: transport.NewReader(cut), addr: addr, tls: state})
}

// Call makes a unary call. take gets the encoded answer before the call ends, and must free its buffers; the memory of a
// large answer counts as in use until then. Errors are those that a client of the transport would receive, and that of take.
func (p *InProcess) Call(caller context.Context, name string, req []byte, take func(transport.Buffers) error) (err error) {
	m := p.s.methods[name]
	if m == nil || m.unary == nil {
		return status.Errorf(codes.Unimplemented, "unknown method %s", name)
	}
	ctx, end, err := p.begin(caller, name, m)
	if err != nil {
		return err
	}
	defer func() { end(err) }()
	message := m.newRequest()
	if err := p.decode(req, message); err != nil {
		return clientError(caller, err)
	}
	res, err := m.served.Unary(ctx, message)
	if err != nil {
		return clientError(caller, err)
	}
	data, err := p.s.codec.Marshal(res)
	if err != nil {
		return clientError(caller, err)
	}
	return take(data)
}

// Open opens a stream. The caller's context ends it.
func (p *InProcess) Open(caller context.Context, name string) (transport.LocalStream, error) {
	m := p.s.methods[name]
	if m == nil || m.stream == nil && m.session == nil {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", name)
	}
	ctx, end, err := p.begin(caller, name, m)
	if err != nil {
		return nil, err
	}
	st := &localStream{p: p, caller: caller, ctx: ctx, up: make(chan []byte), down: make(chan transport.Buffers), done: make(chan struct{})}
	go func() {
		if m.served.Open != nil {
			st.err = transport.ServeSession(localServer{st}, &m.served)
		} else {
			st.err = m.served.Stream(localServer{st})
		}
		close(st.done)
		end(st.err)
	}()
	return st, nil
}

// Hold counts the memory for a decoded answer of n bytes, if it is large, until release is called or the caller's context
// ends.
func (p *InProcess) Hold(caller context.Context, n int64) (release func(), err error) {
	svc := p.s.svc
	if n <= ration.FreeSize || svc.cfg.Ranges == nil {
		return func() {}, nil
	}
	call := withReader(caller)
	loan, err := svc.cfg.Ranges.Force(svc.withHolders(call), copies*n)
	if err != nil {
		return func() {}, svc.dropAnswer(call, n)
	}
	out := svc.trackDelivery(call, loanLender{loan})
	lost := func() { out.delivery.lost() } // refers to out, which must not be collected before
	stop := context.AfterFunc(caller, lost)
	return func() {
		if stop() {
			lost()
		}
	}, nil
}

// copies is how often the memory of an answer is needed to decode it and to encode it as JSON.
const copies = 4

// begin begins a call: it returns the context for the services, and a function to be called at the end.
func (p *InProcess) begin(ctx context.Context, name string, m *method) (context.Context, func(error), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.stopped {
		return nil, nil, rpctypes.ErrGRPCStopped
	}
	p.mu.calls.Add(1)
	ctx = withReader(ctx)
	md, _ := metadata.FromOutgoingContext(ctx)
	ctx = metadata.NewOutgoingContext(metadata.NewIncomingContext(ctx, md), nil)
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(p.ctx, cancel)
	ctx, ended := transport.ReportCall(p.s.svc.cfg.Stats, ctx, name, &m.served)
	return ctx, func(err error) {
		release()
		ended(clientError(ctx, err))
		cancel()
		p.mu.calls.Done()
	}, nil
}

// withReader returns a context that names the reader of a call, if it is known, as its client.
func withReader(ctx context.Context) context.Context {
	r, ok := ctx.Value(readerKey{}).(reader)
	if !ok {
		return transport.WithClient(ctx, gatewayAddr{}, nil)
	}
	return transport.WithTLS(transport.WithClient(ctx, r.addr, r.client), r.tls)
}

// shutDown rejects further calls and waits for the present ones, which it cancels when ctx ends.
func (p *InProcess) shutDown(ctx context.Context) {
	p.mu.Lock()
	p.mu.stopped = true
	p.mu.Unlock()
	defer context.AfterFunc(ctx, p.stop)()
	p.mu.calls.Wait()
}

// decode decodes a message from the client.
func (p *InProcess) decode(b []byte, into any) error {
	if most := MaxMessageBytes(p.s.svc.cfg.MaxRequestBytes); len(b) > most {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", len(b), most)
	}
	if err := p.s.codec.Unmarshal(transport.OneBuffer(b), into); err != nil {
		return status.Errorf(codes.Internal, "grpc: error unmarshalling request: %v", err)
	}
	return nil
}

// clientError returns the error that a client of the transport would receive.
func clientError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		err = status.FromContextError(cause).Err()
	}
	if _, ok := status.FromError(err); !ok {
		err = status.FromContextError(err).Err()
	}
	return err
}

// localStream is the caller's end of a stream.
type localStream struct {
	p      *InProcess
	caller context.Context
	ctx    context.Context // ends with the call
	up     chan []byte
	down   chan transport.Buffers
	sent   sync.Once     // closes up
	done   chan struct{} // closed when the service has ended the call
	err    error         // of the service; not changed after done is closed
}

// Send implements transport.LocalStream.
func (st *localStream) Send(message []byte) error {
	select {
	case st.up <- message:
		return nil
	case <-st.done:
		return io.EOF
	case <-st.ctx.Done():
		return io.EOF
	}
}

// CloseSend implements transport.LocalStream.
func (st *localStream) CloseSend() { st.sent.Do(func() { close(st.up) }) }

// Receive implements transport.LocalStream.
func (st *localStream) Receive() (transport.Buffers, error) {
	select {
	case data := <-st.down:
		return data, nil
	case <-st.done:
	case <-st.caller.Done():
		return nil, status.FromContextError(st.caller.Err()).Err()
	}
	if st.err == nil {
		return nil, io.EOF
	}
	return nil, clientError(st.caller, st.err)
}

// localServer is the service's end of a stream.
type localServer struct{ st *localStream }

// Context implements transport.Stream.
func (ss localServer) Context() context.Context { return ss.st.ctx }

// SendMsg implements transport.Stream.
func (ss localServer) SendMsg(m any) error {
	data, err := ss.st.p.s.codec.Marshal(m)
	if err != nil {
		return err
	}
	select {
	case ss.st.down <- data:
		return nil
	case <-ss.st.ctx.Done():
		data.Free()
		return status.FromContextError(ss.st.ctx.Err()).Err()
	}
}

// RecvMsg implements transport.Stream.
func (ss localServer) RecvMsg(m any) error {
	select {
	case b, ok := <-ss.st.up:
		if !ok {
			return io.EOF
		}
		return ss.st.p.decode(b, m)
	case <-ss.st.ctx.Done(): // also when the handler is over
		return status.FromContextError(ss.st.ctx.Err()).Err()
	}
}
