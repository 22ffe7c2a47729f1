// Package rawconn is a gRPC connection to any member of a cluster: its calls are retried at other
// members, and its streams are opened again until their first answer. Attempts decides which
// attempts are made.
package rawconn

import (
	"context"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"vigil/client/internal/pool"
	"vigil/client/internal/request"
)

// Attempts is the state of one call or stream. One goroutine at a time uses it.
type Attempts interface {
	// Run makes attempts until one succeeds or its error is final. try makes one at a member, and
	// reports whether the request may have reached it. After a success the caller must release the
	// member when it no longer uses it. The error is gRPC's error of the last attempt.
	Run(ctx context.Context,
		try func(ctx context.Context, at *pool.Member) (sent bool, err error)) error
	// AwaitRetry handles the end of a stream without an answer. It reports whether to open the
	// stream again, when it is time to.
	AwaitRetry(ctx context.Context, err error, sent bool) bool
	// RecordEnd handles the end of a stream that is not opened again.
	RecordEnd(ctx context.Context, err error)
}

// Conn implements grpc.ClientConnInterface. The function begins the attempts of a call; req is nil
// for a stream.
type Conn func(name string, req any) Attempts

// Invoke implements grpc.ClientConnInterface.
func (c Conn) Invoke(ctx context.Context, name string, args, reply any,
	opts ...grpc.CallOption) error {
	// If a message is encoded here, it is known whether it was sent.
	req, known := args.(proto.Message)
	known = known && !slices.ContainsFunc(opts, choosesEncoding)
	var used *pool.Member
	err := c(name, args).Run(ctx,
		func(ctx context.Context, at *pool.Member) (sent bool, err error) {
			used = at
			if !known {
				return true, at.Conn().Invoke(ctx, name, args, reply, opts...)
			}
			wrapped := &request.Generated{Message: req}
			err = at.Conn().Invoke(ctx, name, wrapped, reply, opts...)
			return wrapped.Sent(), err
		})
	if err == nil {
		used.Release()
	}
	return err
}

// choosesEncoding reports whether an option chooses how messages are encoded.
func choosesEncoding(o grpc.CallOption) bool {
	switch o.(type) {
	case grpc.ForceCodecCallOption, grpc.ForceCodecV2CallOption, grpc.CustomCodecCallOption:
		return true
	}
	return false
}

// NewStream implements grpc.ClientConnInterface.
func (c Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, name string,
	opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s := &stream{ctx: ctx, name: name, desc: desc, opts: opts, attempts: c(name, nil)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return nil, err
	}
	return s, nil
}

// maxReplayed is how many messages are kept to be sent again. A stream that has sent more without
// an answer is not opened again.
const maxReplayed = 64

// stream is a stream that can be opened again at another member until its first answer: a learner,
// a member without a leader, and a member that refuses the token report so only in that answer.
type stream struct {
	ctx      context.Context
	name     string
	desc     *grpc.StreamDesc
	opts     []grpc.CallOption
	attempts Attempts // owned by NewStream and then by the goroutine that receives
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
func (s *stream) open() error {
	err := s.attempts.Run(s.ctx, func(ctx context.Context, at *pool.Member) (sent bool, err error) {
		ctx, cancel := context.WithCancel(ctx)
		x, err := at.Conn().NewStream(ctx, s.desc, s.name, s.opts...)
		if err != nil {
			cancel()
			return false, err
		}
		// If the stream ends, RecvMsg returns why.
		for _, m := range s.mu.sent {
			_ = x.SendMsg(m)
		}
		if s.mu.closed {
			_ = x.CloseSend()
		}
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
	}
	return err
}

func (s *stream) current() grpc.ClientStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stream
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	s.mu.Lock()
	if p, ok := m.(proto.Message); !ok || len(s.mu.sent) == maxReplayed {
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
func (s *stream) RecvMsg(m any) error {
	for {
		err := s.current().RecvMsg(m)
		if err == nil {
			s.settled.Store(true)
			return nil
		}
		if err = s.reopenOrEnd(err); err != nil {
			return err
		}
	}
}

// reopenOrEnd handles the end of a stream. It returns nil if there is another one.
func (s *stream) reopenOrEnd(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.release()
	switch {
	case err == io.EOF:
	case s.settled.Load():
		s.attempts.RecordEnd(s.ctx, err)
	case s.attempts.AwaitRetry(s.ctx, err, len(s.mu.sent) > 0):
		return s.open()
	}
	s.settled.Store(true)
	return err
}

// CloseSend implements grpc.ClientStream.
func (s *stream) CloseSend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	return s.mu.stream.CloseSend()
}

// Header implements grpc.ClientStream.
func (s *stream) Header() (metadata.MD, error) { return s.current().Header() }

// Trailer implements grpc.ClientStream.
func (s *stream) Trailer() metadata.MD { return s.current().Trailer() }

// Context implements grpc.ClientStream.
func (s *stream) Context() context.Context { return s.current().Context() }
