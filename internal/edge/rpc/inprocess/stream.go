package inprocess

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/transport"
)

// stream is the caller's end of a stream.
type stream struct {
	c      *Caller
	caller context.Context
	ctx    context.Context // ends with the call
	up     chan []byte
	down   chan transport.Buffers
	sent   sync.Once     // closes up
	done   chan struct{} // closed when the service has ended the call
	err    error         // of the service; not changed after done is closed
}

// Send implements transport.LocalStream.
func (st *stream) Send(message []byte) error {
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
func (st *stream) CloseSend() { st.sent.Do(func() { close(st.up) }) }

// Receive implements transport.LocalStream.
func (st *stream) Receive() (transport.Buffers, error) {
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

// serverEnd is the service's end of a stream.
type serverEnd struct{ st *stream }

// Context implements transport.Stream.
func (ss serverEnd) Context() context.Context { return ss.st.ctx }

// SendMsg implements transport.Stream.
func (ss serverEnd) SendMsg(m any) error {
	data, err := ss.st.c.o.Codec.Marshal(m)
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
func (ss serverEnd) RecvMsg(m any) error {
	select {
	case b, ok := <-ss.st.up:
		if !ok {
			return io.EOF
		}
		return ss.st.c.decode(b, m)
	case <-ss.st.ctx.Done(): // also when the handler is over
		return status.FromContextError(ss.st.ctx.Err()).Err()
	}
}
