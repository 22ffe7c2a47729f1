package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"vigil/client/internal/credential"
	"vigil/client/internal/request"
)

// method is a call of the API.
type method struct {
	name string // of gRPC
	op   string // in errors
	// write: two calls may differ from one.
	write bool
	// leader: the call needs a member with a leader. Other members reject it at once, so it has
	// certainly not been applied.
	leader bool
	// lasting: it is a stream that the client ends.
	lasting bool
}

func read(service, name, op string) method {
	return method{name: "/etcdserverpb." + service + "/" + name, op: op, leader: true}
}

func write(service, name, op string) method {
	m := read(service, name, op)
	m.write = true
	return m
}

// stream describes a stream that the client ends.
func stream(service, name, op string) method {
	m := read(service, name, op)
	m.lasting = true
	return m
}

// anyMember describes a call that a member without a leader answers too.
func (m method) anyMember() method {
	m.leader = false
	return m
}

// tracked is a request that records whether the last attempt sent it.
type tracked interface {
	Begin()
	Sent() bool
	First() *request.Context
}

// call makes a call and retries it if that is safe.
func call[R any](ctx context.Context, c *Client, m *method, key string, req tracked) (*R, error) {
	return callWith[R](ctx, c, m, key, req, nil)
}

// ask makes a call with generated messages.
func ask[R any](ctx context.Context, c *Client, m *method, key string,
	req proto.Message) (*R, error) {
	return call[R](ctx, c, m, key, &request.Generated{Message: req})
}

// callWith is call with a given credential, or the client's credential if given is nil. Each
// attempt decodes into a new answer, so a failed attempt leaves nothing in the next one's.
func callWith[R any](ctx context.Context, c *Client, m *method, key string, req tracked,
	given *credential.Credential) (resp *R, err error) {
	h := &c.core.cfg.Hooks
	if h.StartCall != nil {
		ctx = h.StartCall(ctx, m.name)
	}
	a := c.attempts(m, key)
	a.Given, a.Room = given, req.First()
	if h.EndCall != nil {
		began := time.Now()
		defer func() {
			h.EndCall(ctx, Call{Method: m.name, Member: a.Member(), Attempts: a.Count,
				Duration: time.Since(began), Err: err})
		}()
	}
	err = a.makeAttempts(ctx, func(ctx context.Context) (bool, error) {
		resp = new(R)
		req.Begin()
		err := a.At.Conn().Invoke(ctx, m.name, req, resp)
		return req.Sent(), err
	})
	if err != nil {
		return nil, err
	}
	a.At.Release()
	return resp, nil
}
