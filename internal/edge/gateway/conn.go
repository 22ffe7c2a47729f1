package gateway

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/transport"
)

// Services calls the services of this member, with encoded messages.
type Services interface {
	// Call makes a unary call. take gets the answer before the call ends, and must free its
	// buffers.
	Call(ctx context.Context, method string, req []byte, take func(mem.BufferSlice) error) error
	// Open opens a stream, which ends with the context.
	Open(ctx context.Context, method string) (transport.LocalStream, error)
	// Hold counts the memory for a decoded answer of n bytes until release is called or the context
	// ends. If it fails, the call fails with its error.
	Hold(ctx context.Context, n int64) (release func(), err error)
}

// NewConn returns the services as the connection that generated code needs. Invoke also accepts a
// *mem.BufferSlice as the reply, for the encoded answer, whose buffers must be freed.
func NewConn(s Services) grpc.ClientConnInterface { return conn{s} }

type conn struct{ services Services }

// Invoke implements grpc.ClientConnInterface.
func (c conn) Invoke(ctx context.Context, method string, args, reply any,
	opts ...grpc.CallOption) error {
	req, err := encode(args)
	if err != nil {
		return err
	}
	return c.services.Call(ctx, method, req, func(data mem.BufferSlice) error {
		for _, o := range opts {
			if o, ok := o.(grpc.HeaderCallOption); ok {
				*o.HeaderAddr = answerHeader()
			}
		}
		_, err := c.decodeAnswer(ctx, data, reply)
		return err
	})
}

// answerHeader returns the header that the transport sends before an answer.
func answerHeader() metadata.MD { return metadata.Pairs("content-type", "application/grpc") }

func encode(args any) ([]byte, error) {
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

// decodeAnswer decodes an answer. The memory of a large one counts until release is called or ctx
// ends.
func (c conn) decodeAnswer(ctx context.Context, data mem.BufferSlice,
	into any) (release func(), err error) {
	release = func() {}
	if raw, ok := into.(*mem.BufferSlice); ok {
		*raw = data
		return release, nil
	}
	defer data.Free()
	m, ok := into.(proto.Message)
	if !ok {
		return release, status.Errorf(codes.Internal, "an answer into %T", into)
	}
	if release, err = c.services.Hold(ctx, int64(data.Len())); err != nil {
		return release, err
	}
	if err := proto.Unmarshal(data.Materialize(), m); err != nil {
		return release, status.Errorf(codes.Internal,
			"grpc: failed to unmarshal the received message: %v", err)
	}
	return release, nil
}

// NewStream implements grpc.ClientConnInterface. As on a connection, RecvMsg returns the error of a
// call that cannot be opened, so that it is written as a message of the stream, as in etcd.
func (c conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string,
	_ ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.services.Open(ctx, method)
	if err != nil {
		s = refused{err}
	}
	return &stream{conn: c, local: s, ctx: ctx, single: !desc.ClientStreams,
		release: func() {}}, nil
}

// refused is a stream that could not be opened.
type refused struct{ err error }

func (r refused) Send([]byte) error                 { return io.EOF }
func (r refused) CloseSend()                        {}
func (r refused) Receive() (mem.BufferSlice, error) { return nil, r.err }

// stream implements grpc.ClientStream. One goroutine at a time receives.
type stream struct {
	conn  conn
	local transport.LocalStream
	ctx   context.Context
	// single is set if the client sends one message.
	single bool
	// If waits is set, first is an answer that Header received, or firstErr the end of the stream.
	// headed is set after the first answer.
	first         mem.BufferSlice
	firstErr      error
	waits, headed bool
	release       func() // releases the memory of the last answer
}

func (st *stream) Trailer() metadata.MD     { return metadata.MD{} }
func (st *stream) Context() context.Context { return st.ctx }

// Header implements grpc.ClientStream. The header is there as soon as there is an answer.
func (st *stream) Header() (metadata.MD, error) {
	if !st.headed {
		st.first, st.firstErr = st.local.Receive()
		st.waits, st.headed = true, true
	}
	if st.firstErr != nil {
		return nil, nil // RecvMsg returns it
	}
	return answerHeader(), nil
}

// CloseSend implements grpc.ClientStream.
func (st *stream) CloseSend() error {
	st.local.CloseSend()
	return nil
}

// SendMsg implements grpc.ClientStream.
func (st *stream) SendMsg(m any) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	err = st.local.Send(b)
	if err == io.EOF && st.single {
		return nil // like the transport: RecvMsg returns the error of the call
	}
	return err
}

// RecvMsg implements grpc.ClientStream.
func (st *stream) RecvMsg(m any) error {
	st.release() // the last answer is sent
	data, err := st.first, st.firstErr
	if !st.waits {
		data, err = st.local.Receive()
	}
	st.first, st.waits, st.headed = nil, false, true
	if err != nil {
		return err
	}
	st.release, err = st.conn.decodeAnswer(st.ctx, data, m)
	return err
}
