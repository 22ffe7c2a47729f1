package rpc

import (
	"context"
	"io"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/store/ration"
)

// Inside calls the services in this process: a grpc.ClientConnInterface without a transport. The number of calls is not
// limited, they share no connection, and answers are not copied.
//
// Invoke also accepts a *transport.Buffers as the reply, for the encoded answer of the services.
// Each of its buffers must be freed; the memory of a large answer counts as in use until then.
type Inside struct {
	s *Server

	mu struct {
		sync.Mutex
		stopped bool
		calls   sync.WaitGroup
	}
	ctx  context.Context // ends calls that take too long when the server stops
	stop context.CancelFunc
}

// Inside returns the client of the services in this process. Its calls are rejected after the server has begun to stop.
func (s *Server) Inside() *Inside { return s.in }

func newInside(s *Server) *Inside {
	in := &Inside{s: s}
	in.ctx, in.stop = context.WithCancel(context.Background())
	return in
}

// insideAddr is the address of clients of the gateway in logs and lists of watchers.
type insideAddr struct{}

func (insideAddr) Network() string { return "inside" }
func (insideAddr) String() string  { return "gateway" }

type readerKey struct{}

// WithReader returns a context for calls whose answers are sent on to a reader. cut is called if the reader does not take a
// large answer while others wait for its memory.
func (in *Inside) WithReader(ctx context.Context, cut func()) context.Context {
	return context.WithValue(ctx, readerKey{}, transport.NewReader(cut))
}

// begin begins a call: it returns the context for the services, and what must be called at the end.
func (in *Inside) begin(ctx context.Context, name string, m *method) (context.Context, func(error), error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.stopped {
		return nil, nil, rpctypes.ErrGRPCStopped
	}
	in.mu.calls.Add(1)
	ctx = withReader(ctx)
	md, _ := metadata.FromOutgoingContext(ctx)
	ctx = metadata.NewOutgoingContext(metadata.NewIncomingContext(ctx, md), nil)
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(in.ctx, cancel)
	ctx, ended := transport.ReportCall(in.s.svc.cfg.Stats, ctx, name, &m.served)
	return ctx, func(err error) {
		release()
		ended(outcome(ctx, err))
		cancel()
		in.mu.calls.Done()
	}, nil
}

// withReader returns a context that names the reader of a call, if it is known, as its client.
func withReader(ctx context.Context) context.Context {
	c, _ := ctx.Value(readerKey{}).(*transport.Client)
	return transport.WithClient(ctx, insideAddr{}, c)
}

// shut rejects further calls and waits for the present ones, which it cancels when ctx ends.
func (in *Inside) shut(ctx context.Context) {
	in.mu.Lock()
	in.mu.stopped = true
	in.mu.Unlock()
	defer context.AfterFunc(ctx, in.stop)()
	in.mu.calls.Wait()
}

// arrives decodes a message from the client.
func (in *Inside) arrives(b []byte, into any) error {
	if most := MaxMessageBytes(in.s.svc.cfg.MaxRequestBytes); len(b) > most {
		return status.Errorf(codes.ResourceExhausted, "grpc: received message larger than max (%d vs. %d)", len(b), most)
	}
	if err := in.s.codec.Unmarshal(transport.OneBuffer(b), into); err != nil {
		return status.Errorf(codes.Internal, "grpc: error unmarshalling request: %v", err)
	}
	return nil
}

// answered decodes an answer for the caller. The memory of a large one counts until release is called or ctx ends.
func (in *Inside) answered(ctx context.Context, data transport.Buffers, into any) (release func(), err error) {
	release = func() {}
	if raw, ok := into.(*transport.Buffers); ok {
		*raw = data
		return release, nil
	}
	defer data.Free()
	m, ok := into.(proto.Message)
	if !ok {
		return release, status.Errorf(codes.Internal, "an answer into %T", into)
	}
	if release, err = in.keep(ctx, int64(data.Len())); err != nil {
		return release, err
	}
	if err := proto.Unmarshal(data.Materialize(), m); err != nil {
		return release, status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	}
	return release, nil
}

// copies is how often the memory of an answer is needed to decode it and to encode it as JSON.
const copies = 4

// keep counts the memory of a large answer that is decoded, until release is called or the caller's context ends.
func (in *Inside) keep(ctx context.Context, n int64) (release func(), err error) {
	svc := in.s.svc
	if n <= ration.FreeSize || svc.cfg.Ranges == nil {
		return func() {}, nil
	}
	call := withReader(ctx)
	loan, err := svc.cfg.Ranges.Force(svc.held(call), copies*n)
	if err != nil {
		return func() {}, svc.dropped(call, n)
	}
	out := svc.depart(call, forced{loan})
	lost := func() { out.flight.lost() } // refers to out, which must not be collected before
	stop := context.AfterFunc(ctx, lost)
	return func() {
		if stop() {
			lost()
		}
	}, nil
}

// insideHeader returns the header that the transport sends before an answer.
func insideHeader() metadata.MD { return metadata.Pairs("content-type", "application/grpc") }

// heads sets the header in the options of a call.
func heads(opts []grpc.CallOption) {
	for _, o := range opts {
		if o, ok := o.(grpc.HeaderCallOption); ok {
			*o.HeaderAddr = insideHeader()
		}
	}
}

// outcome returns the error that a client of the transport would receive.
func outcome(ctx context.Context, err error) error {
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

// Invoke implements grpc.ClientConnInterface.
func (in *Inside) Invoke(caller context.Context, method string, args, reply any, opts ...grpc.CallOption) (err error) {
	m := in.s.methods[method]
	if m == nil || m.unary == nil {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	req, err := encodeArgs(args)
	if err != nil {
		return err
	}
	ctx, end, err := in.begin(caller, method, m)
	if err != nil {
		return err
	}
	defer func() { end(err) }()
	message := m.newRequest()
	if err := in.arrives(req, message); err != nil {
		return outcome(caller, err)
	}
	res, err := m.served.Unary(ctx, message)
	if err != nil {
		return outcome(caller, err)
	}
	data, err := in.s.codec.Marshal(res)
	if err != nil {
		return outcome(caller, err)
	}
	heads(opts)
	_, err = in.answered(caller, data, reply)
	return err
}

func encodeArgs(args any) ([]byte, error) {
	m, ok := args.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "a request of type %T", args)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	return b, nil
}

// NewStream implements grpc.ClientConnInterface.
func (in *Inside) NewStream(caller context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	m := in.s.methods[method]
	if m == nil || m.stream == nil {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	ctx, end, err := in.begin(caller, method, m)
	if err != nil {
		return nil, err
	}
	st := &insideStream{in: in, caller: caller, ctx: ctx, release: func() {}, up: make(chan []byte), down: make(chan transport.Buffers), done: make(chan struct{})}
	go func() {
		st.err = m.served.Stream(insideServer{st})
		close(st.done)
		end(st.err)
	}()
	return st, nil
}

// insideStream is the caller's end of a stream.
type insideStream struct {
	in            *Inside
	caller        context.Context
	ctx           context.Context // ends with the call
	up            chan []byte
	down          chan transport.Buffers
	sent          sync.Once         // closes up
	first         transport.Buffers // an answer that Header has received; owned by the receiver
	waits, headed bool
	release       func()        // releases the memory of the last answer; owned by the receiver
	done          chan struct{} // closed when the service has ended the call
	err           error         // of the service; not changed after done is closed
}

func (st *insideStream) Trailer() metadata.MD     { return metadata.MD{} }
func (st *insideStream) Context() context.Context { return st.caller }

// Header implements grpc.ClientStream. There is one as soon as there is an answer.
func (st *insideStream) Header() (metadata.MD, error) {
	if !st.headed {
		data, err := st.next()
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		st.first, st.waits, st.headed = data, true, true
	}
	return insideHeader(), nil
}

// next waits for an answer or the end.
func (st *insideStream) next() (transport.Buffers, error) {
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
	return nil, outcome(st.caller, st.err)
}

// CloseSend implements grpc.ClientStream.
func (st *insideStream) CloseSend() error {
	st.sent.Do(func() { close(st.up) })
	return nil
}

// SendMsg implements grpc.ClientStream.
func (st *insideStream) SendMsg(m any) error {
	b, err := encodeArgs(m)
	if err != nil {
		return err
	}
	select {
	case st.up <- b:
		return nil
	case <-st.done:
		return io.EOF
	case <-st.ctx.Done():
		return io.EOF
	}
}

// RecvMsg implements grpc.ClientStream.
func (st *insideStream) RecvMsg(m any) (err error) {
	st.release() // the last answer is sent
	data := st.first
	if !st.waits {
		if data, err = st.next(); err != nil {
			return err
		}
	}
	st.first, st.waits, st.headed = nil, false, true
	st.release, err = st.in.answered(st.caller, data, m)
	return err
}

// insideServer is the service's end of a stream.
type insideServer struct{ st *insideStream }

// Context implements transport.Stream.
func (ss insideServer) Context() context.Context { return ss.st.ctx }

// SendMsg implements transport.Stream.
func (ss insideServer) SendMsg(m any) error {
	data, err := ss.st.in.s.codec.Marshal(m)
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
func (ss insideServer) RecvMsg(m any) error {
	select {
	case b, ok := <-ss.st.up:
		if !ok {
			return io.EOF
		}
		return ss.st.in.arrives(b, m)
	case <-ss.st.ctx.Done(): // also when the handler is over
		return status.FromContextError(ss.st.ctx.Err()).Err()
	}
}
