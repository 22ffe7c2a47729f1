package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"vigil/client/internal/pool"
	"vigil/client/internal/token"
	"vigil/client/internal/wire"
)

// mostRenewals is how many tokens in a row a server may refuse before the call fails.
const mostRenewals = 2

// attempts is the state of a call that is retried. Every call and stream of the package uses it: next chooses the member
// and the credential, judge decides what follows from an error, and failed acts on that.
type attempts struct {
	c     *Client
	m     *method
	key   string
	given *token.Credential // sent instead of the client's
	// room is memory for the context of the next attempt.
	room       *wire.Context
	credential *token.Credential
	at         *pool.Member // of the last attempt
	departs    uint64       // of at when it was chosen
	avoid      *pool.Member
	n          int
	renews     int
	last       error // the last error of gRPC
}

// with adds a credential to a context. room is memory for the result.
func with(ctx, credential context.Context, room *wire.Context) context.Context {
	if own, ok := metadata.FromOutgoingContext(ctx); ok {
		md, _ := metadata.FromOutgoingContext(credential)
		return metadata.NewOutgoingContext(ctx, metadata.Join(md, own))
	}
	*room = wire.Context{Context: ctx, Metadata: credential}
	return room
}

// run makes attempts until one succeeds or its error is final. try makes one at a.at, with state of its own, and reports
// whether the request may have reached the member. After a success the caller must release a.at when it no longer uses
// the connection.
func (a *attempts) run(ctx context.Context, try func(ctx context.Context) (sent bool, err error)) error {
	for {
		octx, err := a.next(ctx)
		if err != nil {
			return err
		}
		sent, err := try(octx)
		if err == nil {
			return nil
		}
		a.at.Release()
		if err := a.failed(ctx, err, sent); err != nil {
			return err
		}
	}
}

func (a *attempts) where() string {
	if a.at == nil {
		return ""
	}
	return a.at.Name()
}

// next obtains a member, which must be released, and a credential for another attempt.
func (a *attempts) next(ctx context.Context) (context.Context, error) {
	core := a.c.core
	var err error
	if a.credential = a.given; a.credential == nil {
		if a.credential, err = core.credential(ctx); err != nil {
			return nil, a.localError(ctx, err)
		}
	}
	at, err := core.pick(ctx, a.c.pin, a.avoid)
	if err != nil {
		return nil, a.localError(ctx, err)
	}
	a.at, a.departs = at, at.Departs()
	a.n++
	md := a.credential.Plain
	if a.m.leader {
		md = a.credential.Leader
	}
	room := a.room
	if a.room = nil; room == nil { // gRPC may still use the last one
		room = new(wire.Context)
	}
	return with(ctx, md, room), nil
}

// localError returns the Error for a failure before anything was sent.
func (a *attempts) localError(ctx context.Context, err error) error {
	a.last = err
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	e := &Error{Op: a.m.op, Key: a.key, Code: codes.Unavailable, Text: err.Error(), kind: err}
	if ctx.Err() != nil {
		e.Code = codes.Canceled
		if errors.Is(err, context.DeadlineExceeded) {
			e.Code = codes.DeadlineExceeded
		}
	}
	return e
}

// failed acts on an error. It redeparts nil when it is time for another attempt.
func (a *attempts) failed(ctx context.Context, err error, sent bool) error {
	core := a.c.core
	e := a.explain(ctx, err)
	v := judge(e, a.m, sent)
	a.markMember(v, e)
	e.Uncertain = a.m.write && v.unknown
	if core.ctx.Err() != nil {
		return e
	}
	if v.renew {
		if !a.renew() {
			return e
		}
	} else if !v.again || e.Uncertain || a.n >= core.cfg.MaxAttempts {
		return e
	}
	if ctx.Err() == nil {
		timer := time.NewTimer(pause(a.n))
		defer timer.Stop()
		select {
		case <-timer.C:
			if h := core.cfg.Hooks.Retry; h != nil {
				h(a.m.name, a.at.Name(), a.n+1, e)
			}
			return nil
		case <-ctx.Done():
		case <-core.ctx.Done():
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		e.kind = errors.Join(cause, e.kind)
		e.Text = cause.Error() + "; before that: " + e.Text
	}
	return e
}

// explain returns the Error for what gRPC returned for the last attempt.
func (a *attempts) explain(ctx context.Context, err error) *Error {
	a.last = err
	e := explain(ctx, a.m.op, a.key, a.where(), err)
	if a.c.core.ctx.Err() != nil {
		a.last = ErrClosed
		e.kind, e.Text = ErrClosed, ErrClosed.Error()
	}
	return e
}

// markMember records what an error says about the member.
func (a *attempts) markMember(v verdict, e *Error) {
	if v.sick {
		a.at.Suspect(e)
	}
	if v.elsewhere {
		a.avoid = a.at
	}
}

// renew drops a token that was refused and reports whether another may help.
func (a *attempts) renew() bool {
	a.renews++
	return a.given == nil && a.renews <= mostRenewals && a.c.core.tokens.Reject(a.credential)
}

// answered records that the member has answered: the next failure counts as the first.
func (a *attempts) answered() { a.n, a.renews, a.avoid = 0, 0, nil }

// pause returns how long to wait after the nth attempt.
func pause(n int) time.Duration {
	const first, most = 25 * time.Millisecond, time.Second
	d := most
	if n < 7 {
		d = min(most, first<<max(0, n-1))
	}
	return d/2 + rand.N(d)
}
