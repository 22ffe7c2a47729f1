package client

import (
	"context"
	"time"

	"vigil/client/internal/token"
	"vigil/client/internal/wire"
)

// method is a call of the API.
type method struct {
	name string // as gRPC has it
	op   string // as errors have it
	// write tells that calling it twice may not be the same as once.
	write bool
	// leader tells that it is of no use at a member without a leader. Such a member then refuses it at once,
	// which settles that it was not applied.
	leader bool
	// lasting tells that it is a stream that goes on until the client ends it.
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

// stream makes a stream of a call that lasts.
func stream(service, name, op string) method {
	m := read(service, name, op)
	m.lasting = true
	return m
}

// anyone makes a call that also a member without a leader answers.
func (m method) anyone() method {
	m.leader = false
	return m
}

// tracked is a request of which is known whether the last attempt has sent it.
type tracked interface {
	Begin()
	Sent() bool
	First() *wire.Context
}

// call makes a call, and tries again as far as that is safe.
func call[R any](ctx context.Context, c *Client, m *method, key string, req tracked) (*R, error) {
	return callWith[R](ctx, c, m, key, req, nil)
}

// callWith is call with a given pass, or one that is got if it is nil. Each attempt has an answer of its own: what
// came of one that failed is not part of the next one's.
func callWith[R any](ctx context.Context, c *Client, m *method, key string, req tracked, given *token.Credential) (resp *R, err error) {
	h := &c.core.cfg.Hooks
	if h.StartCall != nil {
		ctx = h.StartCall(ctx, m.name)
	}
	a := attempts{c: c, m: m, key: key, given: given, room: req.First()}
	if h.EndCall != nil {
		began := time.Now()
		defer func() {
			h.EndCall(ctx, Call{Method: m.name, Member: a.where(), Attempts: a.n, Duration: time.Since(began), Err: err})
		}()
	}
	err = a.run(ctx, func(ctx context.Context) (bool, error) {
		resp = new(R)
		req.Begin()
		err := a.at.Conn().Invoke(ctx, m.name, req, resp)
		return req.Sent(), err
	})
	if err != nil {
		return nil, err
	}
	a.at.Release()
	return resp, nil
}
