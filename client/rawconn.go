package client

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"vigil/client/internal/wire"
)

// Conn returns the client as a gRPC connection, for calls that this package has no method for. They use the same members,
// carry the token, and are retried by the same rules: read-only calls whenever another attempt may help, others if they
// were certainly not applied. A stream is opened again only before its first answer. Errors are those of gRPC, of the
// last attempt. The calls do not require a leader.
func (c *Client) Conn() grpc.ClientConnInterface { return rawConn{c} }

type rawConn struct{ c *Client }

// readOnlyMethods are the services and methods that change nothing, so calling them twice is safe.
var readOnlyMethods = []string{
	rangeMethod.name, rangeStreamMethod.name, watchMethod.name, keepMethod.name, ttlMethod.name, leasesMethod.name,
	memberListMethod.name, statusMethod.name, hashMethod.name, hashKVMethod.name, snapshotMethod.name,
	authStatusMethod.name, authenticateMethod.name, userGetMethod.name, userListMethod.name, roleGetMethod.name, roleListMethod.name,
	"/v3electionpb.Election/Leader", "/v3electionpb.Election/Observe", "/grpc.health.v1.Health/", "/grpc.reflection.",
}

// methodOf describes a call by its name. req is its request, nil if there may be several.
func methodOf(name string, req any) *method {
	m := &method{name: name, op: name, write: true}
	if txn, ok := req.(*etcdserverpb.TxnRequest); ok {
		m.write = !readOnly(txn)
	} else {
		m.write = !slices.ContainsFunc(readOnlyMethods, func(h string) bool { return strings.HasPrefix(name, h) })
	}
	return m
}

func readOnly(txn *etcdserverpb.TxnRequest) bool {
	writes := func(op *etcdserverpb.RequestOp) bool {
		return op.GetRequestRange() == nil && (op.GetRequestTxn() == nil || !readOnly(op.GetRequestTxn()))
	}
	return !slices.ContainsFunc(txn.GetSuccess(), writes) && !slices.ContainsFunc(txn.GetFailure(), writes)
}

// Invoke implements grpc.ClientConnInterface.
func (b rawConn) Invoke(ctx context.Context, name string, args, reply any, opts ...grpc.CallOption) error {
	a := attempts{c: b.c, m: methodOf(name, args)}
	// If a message is encoded here, it is known whether it was sent.
	req, known := args.(proto.Message)
	known = known && !slices.ContainsFunc(opts, encodes)
	err := a.run(ctx, func(ctx context.Context) (sent bool, err error) {
		if !known {
			return true, a.at.Conn().Invoke(ctx, name, args, reply, opts...)
		}
		wrapped := &wire.Generated{Message: req}
		err = a.at.Conn().Invoke(ctx, name, wrapped, reply, opts...)
		return wrapped.Sent(), err
	})
	return a.done(err)
}

// encodes reports whether an option chooses how messages are encoded.
func encodes(o grpc.CallOption) bool {
	switch o.(type) {
	case grpc.ForceCodecCallOption, grpc.ForceCodecV2CallOption, grpc.CustomCodecCallOption:
		return true
	}
	return false
}

// done ends a call: its error is the last one of gRPC.
func (a *attempts) done(err error) error {
	if err == nil {
		a.at.Release()
		return nil
	}
	return a.last
}

// NewStream implements grpc.ClientConnInterface.
func (b rawConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, name string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s := &rawStream{ctx: ctx, desc: desc, opts: opts, a: attempts{c: b.c, m: methodOf(name, nil)}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

// mostReplayed is how many messages are kept to be sent again. A stream that has sent more without an answer is not
// opened again.
const mostReplayed = 64

// rawStream is a stream of Conn. Until its first answer it can be opened again at another member: a learner, a member
// without a leader, and a member that refuses the token report so only in that answer.
type rawStream struct {
	ctx  context.Context
	desc *grpc.StreamDesc
	opts []grpc.CallOption
	a    attempts // owned by NewStream and then by the goroutine that receives
	// settled: the stream is not opened again, because it was answered or has failed.
	settled atomic.Bool
	mu      struct {
		sync.Mutex
		stream  grpc.ClientStream
		release func()
		sent    []proto.Message // before the stream was settled
		closed  bool            // and then CloseSend
	}
}

// open opens the stream and sends the messages again that were sent before. The lock is held.
func (s *rawStream) open() error {
	err := s.a.run(s.ctx, func(ctx context.Context) (sent bool, err error) {
		ctx, cancel := context.WithCancel(ctx)
		x, err := s.a.at.Conn().NewStream(ctx, s.desc, s.a.m.name, s.opts...)
		if err != nil {
			cancel()
			return false, err
		}
		// If the stream ends meanwhile, RecvMsg returns why.
		for _, m := range s.mu.sent {
			_ = x.SendMsg(m)
		}
		if s.mu.closed {
			_ = x.CloseSend()
		}
		at := s.a.at
		end := sync.OnceFunc(func() {
			cancel()
			at.Release()
		})
		stop := context.AfterFunc(s.ctx, end)
		s.mu.stream, s.mu.release = x, func() {
			stop()
			end()
		}
		return true, nil
	})
	if err != nil {
		s.settled.Store(true)
		return s.a.last
	}
	return nil
}

func (s *rawStream) current() grpc.ClientStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stream
}

// SendMsg implements grpc.ClientStream.
func (s *rawStream) SendMsg(m any) error {
	s.mu.Lock()
	if p, ok := m.(proto.Message); !ok || len(s.mu.sent) == mostReplayed {
		s.settled.Store(true)
	} else if !s.settled.Load() {
		defer s.mu.Unlock()
		s.mu.sent = append(s.mu.sent, proto.Clone(p))
		if err := s.mu.stream.SendMsg(m); err != io.EOF {
			return err
		}
		return nil // it is sent on the next stream, or RecvMsg returns why there is none
	}
	x := s.mu.stream
	s.mu.Unlock()
	return x.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *rawStream) RecvMsg(m any) error {
	for {
		err := s.current().RecvMsg(m)
		if err == nil {
			s.settled.Store(true)
			return nil
		}
		if err = s.lost(err); err != nil {
			return err
		}
	}
}

// lost handles the end of a stream. It returns nil if there is another one.
func (s *rawStream) lost(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.release()
	switch {
	case err == io.EOF:
	case s.settled.Load():
		e := s.a.explain(s.ctx, err)
		v := judge(e, s.a.m, true)
		s.a.markMember(v, e)
		if v.renew {
			s.a.renew() // the next stream gets another token
		}
	case s.a.failed(s.ctx, err, len(s.mu.sent) > 0) == nil:
		return s.open()
	}
	s.settled.Store(true)
	return err
}

// CloseSend implements grpc.ClientStream.
func (s *rawStream) CloseSend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	return s.mu.stream.CloseSend()
}

// Header implements grpc.ClientStream.
func (s *rawStream) Header() (metadata.MD, error) { return s.current().Header() }

// Trailer implements grpc.ClientStream.
func (s *rawStream) Trailer() metadata.MD { return s.current().Trailer() }

// Context implements grpc.ClientStream.
func (s *rawStream) Context() context.Context { return s.current().Context() }
