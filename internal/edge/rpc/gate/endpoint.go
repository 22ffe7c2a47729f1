package gate

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// Service is a service with the functions that implement its methods.
type Service struct {
	Name    string // with its package, such as etcdserverpb.KV
	Methods []Endpoint
}

// Endpoint is one method as its service implements it. One of Unary, Stream and Session is set.
type Endpoint struct {
	Name                         string
	ClientStreams, ServerStreams bool

	// NewRequest makes the message into which a request is decoded. Free, if set, is
	// transport.Method.Free.
	NewRequest func() any
	Free       func(request any)
	Unary      func(ctx context.Context, request any) (response any, err error)
	Stream     func(transport.Stream) error
	Session    func() SessionHandler

	// Begin and Finish, if set, serve a unary request without a handler: Begin answers or starts a
	// call, Finish makes the answer of its outcome. Begin must not wait, and not read files.
	Begin  func(ctx context.Context, request any, p transport.Pending) (any, transport.Begun)
	Finish func(ctx context.Context, o *kv.Outcome) (response any, err error)
	// MayDecline: a request that was started may still go to Unary.
	MayDecline bool

	// ForLearner: a learner serves the method. ForLearnerIf, if set, decides that for a unary
	// request.
	ForLearner   bool
	ForLearnerIf func(request any) bool

	// Seconds, if set, observes how long successful calls take.
	Seconds prometheus.Observer
}

// kind returns the name of the kind of method in metrics.
func (e *Endpoint) kind() string {
	switch {
	case e.ClientStreams && e.ServerStreams:
		return "bidi_stream"
	case e.ClientStreams:
		return "client_stream"
	case e.ServerStreams:
		return "server_stream"
	}
	return "unary"
}

// Unary returns a unary method with requests of one type.
func Unary[Request, Response any](name string,
	call func(context.Context, *Request) (Response, error)) Endpoint {
	return Endpoint{
		Name:       name,
		NewRequest: func() any { return new(Request) },
		Unary: func(ctx context.Context, r any) (any, error) {
			return call(ctx, r.(*Request))
		},
	}
}

// ServerStreaming returns a method that answers one request with many messages.
func ServerStreaming[Request any](name string,
	serve func(*Request, transport.Stream) error) Endpoint {
	return Endpoint{Name: name, ServerStreams: true, Stream: func(s transport.Stream) error {
		r := new(Request)
		if err := s.RecvMsg(r); err != nil {
			return err
		}
		return serve(r, s)
	}}
}

// BidiStreaming returns a method that is served by sessions, with requests of one type.
func BidiStreaming[Request any](name string, session func() SessionHandler) Endpoint {
	return Endpoint{Name: name, ClientStreams: true, ServerStreams: true,
		NewRequest: func() any { return new(Request) }, Session: session}
}

// Header returns the header of a response.
func Header(h kv.Header) *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID,
		Revision: h.Revision, RaftTerm: h.Term}
}
