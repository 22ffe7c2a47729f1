package transport

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Service is a named list of methods.
type Service struct {
	Name    string // with its package, such as etcdserverpb.KV
	Methods []Method
}

// Method is one method of a service. One of Unary, Stream and Open is set.
type Method struct {
	Name                         string
	ClientStreams, ServerStreams bool

	// NewRequest makes the message into which a unary request, or a message for a Session, is
	// decoded.
	NewRequest func() any
	// Free, if set, gets a request that Begin has answered, once the answer is encoded: NewRequest
	// may return it again. Neither Begin nor the answer may keep the request or anything it refers
	// to.
	Free func(request any)
	// Unary answers a request. Codec encodes the message that it returns.
	Unary func(ctx context.Context, request any) (response any, err error)
	// Begin, if set, may be called before Unary, on the goroutine that reads the connection. It
	// must not wait and must not read files. It returns an answer, declines, or starts the call,
	// which others answer through Answers. Nobody may use the context after the answer.
	Begin func(ctx context.Context, request any, call Pending) (response any, how Begun)
	// Tag is for the user of the package, who finds it through the method of a Pending.
	Tag any
	// Stream serves a stream until it returns.
	Stream func(Stream) error
	// Open opens a Session for a stream that lasts and needs no goroutine between its messages. An
	// error ends the stream.
	Open func(Peer) (Session, error)

	path string // set by NewServer
}

// Stream is one stream with a client. Sending and receiving may run concurrently.
type Stream interface {
	// Context returns a context that ends with the stream.
	Context() context.Context
	// SendMsg sends a message. Codec encodes it.
	SendMsg(m any) error
	// RecvMsg waits for the next message and decodes it into m. It returns io.EOF after the last
	// one.
	RecvMsg(m any) error
}

// LocalStream is the caller's side of a stream in this process. Its messages are encoded. One
// goroutine may send while another receives.
type LocalStream interface {
	// Send sends a message, which belongs to the service from then on. It returns io.EOF if the
	// call has ended.
	Send(message []byte) error
	// CloseSend notes that there are no more messages.
	CloseSend()
	// Receive waits for the next answer, whose buffers the caller must free. It returns io.EOF
	// after the last one.
	Receive() (Buffers, error)
}

// EndStatus returns the status of a call that ends with err: the cause of its context if the
// context has ended.
func EndStatus(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); status.Code(cause) != codes.Unknown {
		return cause
	}
	return status.FromContextError(ctx.Err()).Err()
}
