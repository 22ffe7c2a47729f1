package client

import (
	"context"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client/internal/wire"
)

// KeepAlive is what a member answered to one keep-alive.
type KeepAlive struct {
	Header Header
	ID     LeaseID
	// TTL is how long the lease lives from when it was asked for; 0 if there is no such lease.
	TTL time.Duration
}

// KeepAlives is a stream of keep-alives for any number of leases, as far as it lasts: when its member is lost it
// ends with an error, and another is to be opened. Package lease does all that; this is what it is made of.
// One goroutine may send while another receives.
type KeepAlives struct {
	stream  grpc.ClientStream
	ctx     context.Context // the caller's
	own     context.Context // that of the stream
	at      attempts
	release func()
	resp    leaseResponse
}

var keepStream = &grpc.StreamDesc{StreamName: "LeaseKeepAlive", ServerStreams: true, ClientStreams: true}

// OpenKeepAlives opens a stream, which lasts no longer than the context. A stream that is not used any more must
// be ended through its context.
func (c *Client) OpenKeepAlives(ctx context.Context) (*KeepAlives, error) {
	k := &KeepAlives{ctx: ctx, at: attempts{c: c, m: &keepMethod}}
	err := k.at.run(ctx, func(octx context.Context) (sent bool, err error) {
		var cancel context.CancelCauseFunc
		k.own, cancel = context.WithCancelCause(octx)
		if k.stream, err = k.at.at.Conn().NewStream(k.own, keepStream, keepMethod.name); err != nil {
			cancel(nil)
			return false, err
		}
		at := k.at.at
		forget := at.OnLeave(k.at.departs, func() {
			if c.pin == nil && (!at.Listed() || c.core.pool.Size() > 1) {
				cancel(errLeft)
			}
		})
		k.release = sync.OnceFunc(func() {
			cancel(nil)
			forget()
			at.Release()
		})
		context.AfterFunc(ctx, k.release)
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Member is the endpoint that the stream goes to.
func (k *KeepAlives) Member() string { return k.at.where() }

// Send asks for one keep-alive. An error says only that the stream has ended; Recv says why.
func (k *KeepAlives) Send(id LeaseID) error {
	return k.stream.SendMsg(&wire.KeepAliveRequest{ID: int64(id)})
}

// Recv waits for the next answer. Answers come in the order of what was sent. After an error the stream has ended;
// Temporary reports whether another one may do better.
func (k *KeepAlives) Recv() (KeepAlive, error) {
	if err := k.stream.RecvMsg(&k.resp); err != nil {
		e := k.at.explain(k.ctx, ended(k.own, err))
		k.release()
		v := judge(e, &keepMethod, false)
		k.at.follow(v, e)
		if v.renew {
			k.at.renew() // the next stream gets another token
		}
		return KeepAlive{}, e
	}
	return KeepAlive{Header: k.resp.header, ID: k.resp.id, TTL: seconds(k.resp.ttl)}, nil
}

// ended names why a stream that lasts has ended, where gRPC does not.
func ended(ctx context.Context, err error) error {
	switch {
	case context.Cause(ctx) == errLeft:
		return errLeft
	case err == io.EOF:
		return errEnded
	}
	return err
}

var (
	// errLeft ends a stream whose member turned sick, is not among the endpoints any more, or is not preferred.
	errLeft = status.Error(codes.Unavailable, "the client left the member")
	// errEnded is a stream that the member ended without a reason.
	errEnded = status.Error(codes.Unavailable, "the member ended the stream")
)

// Leave says that the member does not answer, so that it is left alone for a while.
func (k *KeepAlives) Leave(why error) { k.at.at.Suspect(why) }

// keepAliveOnce is one keep-alive on a stream of its own.
func (a *attempts) keepAliveOnce(ctx context.Context, id LeaseID) (sent bool, ttl time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := open(ctx, a.at, keepStream, keepMethod.name, &wire.KeepAliveRequest{ID: int64(id)})
	if err != nil {
		return true, 0, err
	}
	var resp leaseResponse
	if err := s.RecvMsg(&resp); err != nil {
		return true, 0, ended(ctx, err)
	}
	return true, seconds(resp.ttl), nil
}
