package client

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"vigil/client/internal/attempt"
	"vigil/client/internal/request"
)

// KeepAlive is a member's answer to one keep-alive.
type KeepAlive struct {
	Header Header
	ID     LeaseID
	// TTL is how long the lease lives from when the keep-alive was sent; 0 if there is no such
	// lease.
	TTL time.Duration
}

// KeepAlives is a stream of keep-alives for any number of leases. When its member is lost, it ends
// with an error, and the caller must open another. Package lease does that. One goroutine may send
// while another receives.
type KeepAlives struct {
	stream  grpc.ClientStream
	ctx     context.Context // the caller's
	own     context.Context // the stream's
	at      attempts
	release func()
	resp    leaseResponse
}

var keepStream = &grpc.StreamDesc{StreamName: "LeaseKeepAlive", ServerStreams: true,
	ClientStreams: true}

// OpenKeepAlives opens a stream, which ends with the context. The caller must cancel the context to
// end the stream.
func (c *Client) OpenKeepAlives(ctx context.Context) (*KeepAlives, error) {
	k := &KeepAlives{ctx: ctx, at: c.attempts(&keepMethod, "")}
	err := k.at.makeAttempts(ctx, func(octx context.Context) (sent bool, err error) {
		var cancel context.CancelCauseFunc
		k.own, cancel = context.WithCancelCause(octx)
		if k.stream, err = k.at.At.Conn().NewStream(k.own, keepStream,
			keepMethod.name); err != nil {
			cancel(nil)
			return false, err
		}
		at := k.at.At
		forget := k.at.OnLeave(func() {
			if c.pin == nil && (!at.Listed() || c.core.pool.Size() > 1) {
				cancel(attempt.ErrLeft)
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

// Member is the endpoint of the stream.
func (k *KeepAlives) Member() string { return k.at.Member() }

// Send sends one keep-alive. An error means only that the stream has ended; Recv returns why.
func (k *KeepAlives) Send(id LeaseID) error {
	return k.stream.SendMsg(&request.KeepAlive{ID: int64(id)})
}

// Recv waits for the next answer, in the order of the requests. After an error the stream has
// ended; Temporary reports whether another stream may succeed.
func (k *KeepAlives) Recv() (KeepAlive, error) {
	if err := k.stream.RecvMsg(&k.resp); err != nil {
		e := k.at.explain(k.ctx, attempt.StreamError(k.own, err))
		k.release()
		v := judge(e, &keepMethod, false)
		k.at.MarkMember(v, e)
		if v.Renew {
			k.at.RenewToken(v) // the next stream gets another token
		}
		return KeepAlive{}, e
	}
	return KeepAlive{Header: k.resp.header, ID: k.resp.id, TTL: request.Seconds(k.resp.ttl)}, nil
}

// Leave reports that the member does not answer, so that the client avoids it for a while.
func (k *KeepAlives) Leave(why error) { k.at.At.Suspect(why) }

// keepAliveOnce sends one keep-alive on a new stream.
func (a *attempts) keepAliveOnce(ctx context.Context, id LeaseID) (sent bool,
	ttl time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := openStream(ctx, a.At, keepStream, keepMethod.name, &request.KeepAlive{ID: int64(id)})
	if err != nil {
		return true, 0, err
	}
	var resp leaseResponse
	if err := s.RecvMsg(&resp); err != nil {
		return true, 0, attempt.StreamError(ctx, err)
	}
	return true, request.Seconds(resp.ttl), nil
}
