// Package inprocess calls the services of a member in this process, without a connection. The JSON
// gateway and the console are its users.
package inprocess

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/transport"
)

// Options are what New needs.
type Options struct {
	// Services are the services to call.
	Services []transport.Service
	// Codec encodes and decodes messages.
	Codec *transport.Codec
	// MaxMessageBytes is the largest message that is decoded.
	MaxMessageBytes int
	// Stats, if set, is notified of the beginning and the end of each call.
	Stats transport.StatsHandler
	// Deliveries counts decoded answers.
	Deliveries *delivery.Deliveries
}

// Caller calls the services. The number of calls is not limited, and answers are not copied.
// Messages are encoded; the metadata of a call are the outgoing ones of its context.
type Caller struct {
	o       Options
	methods map[string]*transport.Method // by full name; not changed after New

	mu struct {
		sync.Mutex
		stopped bool
		calls   sync.WaitGroup
	}
	running context.Context // ends the calls that last too long when the server stops
	stop    context.CancelFunc
}

// New returns a Caller. Its calls are rejected after Stop.
func New(o Options) *Caller {
	c := &Caller{o: o, methods: map[string]*transport.Method{}}
	for _, s := range o.Services {
		for i := range s.Methods {
			c.methods["/"+s.Name+"/"+s.Methods[i].Name] = &s.Methods[i]
		}
	}
	c.running, c.stop = context.WithCancel(context.Background())
	return c
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
	origin string               // the client's address, if addr is not
}

// WithReader returns a context for calls whose answers are forwarded to the address remote. cut is
// called if the reader there does not read a large answer while others wait for its memory.
func (c *Caller) WithReader(ctx context.Context, remote string, cut func()) context.Context {
	return context.WithValue(ctx, readerKey{},
		reader{client: transport.NewReader(cut), addr: gatewayAddr{}, origin: remote})
}

// WithConnection is WithReader for calls with the identity of a connection: a verified certificate
// of state names the user, as on a connection of gRPC. addr is the caller's address in logs and
// lists of watchers; state is nil without TLS.
func (c *Caller) WithConnection(ctx context.Context, addr net.Addr, state *tls.ConnectionState,
	cut func()) context.Context {
	return context.WithValue(ctx, readerKey{},
		reader{client: transport.NewReader(cut), addr: addr, tls: state})
}

// Origin returns the address of the client for whom a call is made in this process, "" if unknown.
func Origin(ctx context.Context) string {
	r, _ := ctx.Value(readerKey{}).(reader)
	return r.origin
}

// withReader returns a context that names the reader of a call, if there is one, as its client.
func withReader(ctx context.Context) context.Context {
	r, ok := ctx.Value(readerKey{}).(reader)
	if !ok {
		return transport.WithClient(ctx, gatewayAddr{}, nil)
	}
	return transport.WithTLS(transport.WithClient(ctx, r.addr, r.client), r.tls)
}

// find returns a method by its full name.
func (c *Caller) find(name string, stream bool) (*transport.Method, error) {
	m := c.methods[name]
	if m == nil || (m.Unary == nil) != stream {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", name)
	}
	return m, nil
}

// Call makes a unary call. use gets the encoded answer before the call ends, and must free its
// buffers; the memory of a large answer counts as in use until then. The error is the one that a
// client of the transport would receive, or that use returned.
func (c *Caller) Call(caller context.Context, name string, req []byte,
	use func(transport.Buffers) error) (err error) {
	m, err := c.find(name, false)
	if err != nil {
		return err
	}
	ctx, end, err := c.beginCall(caller, name, m)
	if err != nil {
		return err
	}
	defer func() { end(err) }()
	message := m.NewRequest()
	if err := c.decode(req, message); err != nil {
		return clientError(caller, err)
	}
	res, err := m.Unary(ctx, message)
	if err != nil {
		return clientError(caller, err)
	}
	data, err := c.o.Codec.Marshal(res)
	if err != nil {
		return clientError(caller, err)
	}
	return use(data)
}

// Open opens a stream. The caller's context ends it.
func (c *Caller) Open(caller context.Context, name string) (transport.LocalStream, error) {
	m, err := c.find(name, true)
	if err != nil {
		return nil, err
	}
	ctx, end, err := c.beginCall(caller, name, m)
	if err != nil {
		return nil, err
	}
	st := &stream{c: c, caller: caller, ctx: ctx, up: make(chan []byte),
		down: make(chan transport.Buffers), done: make(chan struct{})}
	go func() {
		if m.Open != nil {
			st.err = transport.ServeSession(serverEnd{st}, m)
		} else {
			st.err = m.Stream(serverEnd{st})
		}
		close(st.done)
		end(st.err)
	}()
	return st, nil
}

// Hold counts the memory for a decoded answer of n bytes, if it is large, until release is called
// or the caller's context ends.
func (c *Caller) Hold(caller context.Context, n int64) (release func(), err error) {
	return c.o.Deliveries.CountDecoded(withReader(caller), n)
}

// beginCall begins a call: it returns the context for the services, and the function to call at the
// end.
func (c *Caller) beginCall(ctx context.Context, name string, m *transport.Method) (context.Context,
	func(error), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return nil, nil, rpctypes.ErrGRPCStopped
	}
	c.mu.calls.Add(1)
	ctx = withReader(ctx)
	md, _ := metadata.FromOutgoingContext(ctx)
	ctx = metadata.NewOutgoingContext(metadata.NewIncomingContext(ctx, md), nil)
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(c.running, cancel)
	ctx, ended := transport.ReportCall(c.o.Stats, ctx, name, m)
	return ctx, func(err error) {
		release()
		ended(clientError(ctx, err))
		cancel()
		c.mu.calls.Done()
	}, nil
}

// Stop rejects further calls and waits for the present ones, which it cancels when ctx ends.
func (c *Caller) Stop(ctx context.Context) {
	c.mu.Lock()
	c.mu.stopped = true
	c.mu.Unlock()
	defer context.AfterFunc(ctx, c.stop)()
	c.mu.calls.Wait()
}

// decode decodes a message from the client.
func (c *Caller) decode(b []byte, into any) error {
	if len(b) > c.o.MaxMessageBytes {
		return status.Errorf(codes.ResourceExhausted,
			"grpc: received message larger than max (%d vs. %d)", len(b), c.o.MaxMessageBytes)
	}
	if err := c.o.Codec.Unmarshal(transport.OneBuffer(b), into); err != nil {
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
