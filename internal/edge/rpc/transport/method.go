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

// Method is one method of a service: one of Unary, Stream and Open is set.
type Method struct {
	Name                         string
	ClientStreams, ServerStreams bool

	// NewRequest makes the message that a unary request, or a message for a Session, is decoded into.
	NewRequest func() any
	// Free, if set, gets a request that Begin has answered, after the encoding of the answer: NewRequest may return it again.
	// Neither Begin nor the answer may have kept it or what it refers to.
	Free func(request any)
	// Unary answers a request. The message that it returns is encoded as Codec does.
	Unary func(ctx context.Context, request any) (response any, err error)
	// Begin, if set, may be called before Unary, by the goroutine that reads the connection. It must not wait, and not read
	// files. It may return an answer, decline, or start the call, whose answer others give by Answers. After the answer the
	// context must not be used.
	Begin func(ctx context.Context, request any, call Pending) (response any, how Begun)
	// Tag is for the user of the package: that finds it by the method of a Pending.
	Tag any
	// Stream serves a stream until it returns.
	Stream func(Stream) error
	// Open begins a stream of a client that sends many messages, and has no goroutine between them. An error ends it.
	Open func(Peer) (Session, error)

	path string // set by a server of this package
}

// Stream is one stream with a client. Sending and receiving may run concurrently.
type Stream interface {
	// Context ends with the stream.
	Context() context.Context
	// SendMsg sends a message, which is encoded as Codec does.
	SendMsg(m any) error
	// RecvMsg decodes the next message into m. It returns io.EOF after the last one.
	RecvMsg(m any) error
}

// LocalStream is one stream of a call that is made in this process, as its caller sees it. Messages are encoded. One goroutine
// may send while another receives.
type LocalStream interface {
	// Send sends a message, which belongs to the service from then on. It returns io.EOF if the call has ended.
	Send(message []byte) error
	// CloseSend notes that there are no more messages.
	CloseSend()
	// Receive waits for the next answer, whose buffers must be freed. It returns io.EOF after the last one.
	Receive() (Buffers, error)
}

// EndStatus returns the status of a call that ends with err: the cause of its context if that has ended.
func EndStatus(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); status.Code(cause) != codes.Unknown {
		return cause
	}
	return status.FromContextError(ctx.Err()).Err()
}
