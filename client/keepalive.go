package client

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
	stream grpc.ClientStream
	member *member
	pass   *pass
	tokens *tokens
	resp   leaseResponse
}

var keepStream = &grpc.StreamDesc{StreamName: "LeaseKeepAlive", ServerStreams: true, ClientStreams: true}

// OpenKeepAlives opens a stream, which lasts no longer than the context. A stream that is not used any more must
// be ended through its context.
func (c *Client) OpenKeepAlives(ctx context.Context) (*KeepAlives, error) {
	return c.openKeepAlives(ctx, &attempts{c: c, m: &keepMethod})
}

func (c *Client) openKeepAlives(ctx context.Context, a *attempts) (*KeepAlives, error) {
	for {
		octx, err := a.next(ctx, new(outgoing))
		if err != nil {
			return nil, err
		}
		s, err := a.at.conn.NewStream(octx, keepStream, keepMethod.name)
		if err == nil {
			return &KeepAlives{stream: s, member: a.at, pass: a.pass, tokens: c.core.tokens}, nil
		}
		if err := a.failed(ctx, err, false); err != nil {
			return nil, err
		}
	}
}

// Member is the endpoint that the stream goes to.
func (k *KeepAlives) Member() string { return k.member.name }

// Send asks for one keep-alive. An error says only that the stream has ended; Recv says why.
func (k *KeepAlives) Send(id LeaseID) error { return k.stream.SendMsg(&leaseRequest{id: id}) }

// Recv waits for the next answer. Answers come in the order of what was sent.
func (k *KeepAlives) Recv() (KeepAlive, error) {
	if err := k.stream.RecvMsg(&k.resp); err != nil {
		if err == io.EOF {
			err = &Error{Op: keepMethod.op, Code: codes.Unavailable, Text: "the member ended the stream"}
		}
		e := explain(k.stream.Context(), keepMethod.op, "", k.member.name, err)
		switch v := judge(e, false); {
		case v.sick:
			k.member.doubt(e)
		case v.renew:
			k.tokens.refused(k.pass) // the next stream gets another
		}
		return KeepAlive{}, e
	}
	return KeepAlive{Header: k.resp.header, ID: k.resp.id, TTL: seconds(k.resp.ttl)}, nil
}

// Leave says that the member does not answer, so that it is left alone for a while.
func (k *KeepAlives) Leave(why error) { k.member.doubt(why) }
