package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
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
}

func read(service, name, op string) method {
	return method{"/etcdserverpb." + service + "/" + name, op, false, true}
}

func write(service, name, op string) method {
	return method{"/etcdserverpb." + service + "/" + name, op, true, true}
}

// anyone makes a call that also a member without a leader answers.
func (m method) anyone() method {
	m.leader = false
	return m
}

// tracked is a request of which is known whether it was sent.
type tracked interface {
	sent() bool
	first() *outgoing
}

// outgoing is the context of a call: the caller's, with the metadata of a pass.
type outgoing struct {
	context.Context
	pass context.Context
}

// Value implements context.Context.
func (o *outgoing) Value(key any) any {
	if v := o.pass.Value(key); v != nil {
		return v
	}
	return o.Context.Value(key)
}

// with adds a pass to a context. room is where the result may go.
func with(ctx, pass context.Context, room *outgoing) context.Context {
	if own, ok := metadata.FromOutgoingContext(ctx); ok {
		md, _ := metadata.FromOutgoingContext(pass)
		return metadata.NewOutgoingContext(ctx, metadata.Join(md, own))
	}
	*room = outgoing{ctx, pass}
	return room
}

// call makes a call, and tries again as far as that is safe.
func (c *Client) call(ctx context.Context, m *method, key string, req tracked, resp any) error {
	return c.invoke(ctx, m, key, req, resp, nil)
}

// invoke is call with a given pass, or one that is got if it is nil.
func (c *Client) invoke(ctx context.Context, m *method, key string, req tracked, resp any, given *pass) (err error) {
	h := &c.core.cfg.Hooks
	if h.StartCall != nil {
		ctx = h.StartCall(ctx, m.name)
	}
	a := attempts{c: c, m: m, key: key, given: given}
	if h.EndCall != nil {
		began := time.Now()
		defer func() {
			h.EndCall(ctx, Call{Method: m.name, Member: a.where(), Attempts: a.n, Duration: time.Since(began), Err: err})
		}()
	}
	for room := req.first(); ; {
		octx, e := a.next(ctx, room)
		if e != nil {
			return e
		}
		if e = a.at.conn.Invoke(octx, m.name, req, resp); e == nil {
			return nil
		}
		room = new(outgoing) // gRPC may not be done with the first
		if err := a.failed(ctx, e, req.sent()); err != nil {
			return err
		}
	}
}

// mostRenewals is how many tokens in a row a server may refuse before it is believed.
const mostRenewals = 2

// attempts is the state of a call that is tried until it is answered.
type attempts struct {
	c      *Client
	m      *method
	key    string
	given  *pass
	pass   *pass
	at     *member // of the last attempt
	avoid  *member
	n      int
	renews int
}

func (a *attempts) where() string {
	if a.at == nil {
		return ""
	}
	return a.at.name
}

// next gets a member and a pass for another attempt.
func (a *attempts) next(ctx context.Context, room *outgoing) (context.Context, error) {
	core := a.c.core
	var err error
	if a.pass = a.given; a.pass == nil {
		if a.pass, err = core.tokens.get(ctx); err != nil {
			return nil, a.local(ctx, err)
		}
	}
	if a.at, err = core.pool.pick(ctx, a.c.pin, a.avoid); err != nil {
		return nil, a.local(ctx, err)
	}
	a.n++
	md := a.pass.plain
	if a.m.leader {
		md = a.pass.leader
	}
	return with(ctx, md, room), nil
}

// local words an error that came before anything was sent.
func (a *attempts) local(ctx context.Context, err error) error {
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

// failed judges an error. It returns nil when it is time for another attempt.
func (a *attempts) failed(ctx context.Context, err error, sent bool) error {
	core := a.c.core
	e := explain(ctx, a.m.op, a.key, a.at.name, err)
	v := judge(e, sent)
	if v.sick {
		a.at.doubt(e)
	}
	if v.elsewhere {
		a.avoid = a.at
	}
	e.Uncertain = a.m.write && v.unknown
	if core.ctx.Err() != nil {
		e.kind, e.Text = ErrClosed, ErrClosed.Error()
		return e
	}
	if v.renew {
		a.renews++
		if a.given != nil || a.renews > mostRenewals || !core.tokens.refused(a.pass) {
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
				h(a.m.name, a.at.name, a.n+1, e)
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

// pause is how long to wait after the nth attempt.
func pause(n int) time.Duration {
	const first, most = 25 * time.Millisecond, time.Second
	d := most
	if n < 7 {
		d = min(most, first<<(n-1))
	}
	return d/2 + rand.N(d)
}

// verdict is what follows from an error.
type verdict struct {
	again     bool // another attempt may help
	elsewhere bool // at another member rather
	sick      bool // the member is to be left alone for a while
	renew     bool // with another token
	unknown   bool // a write may have been applied
}

// judge says what follows from an error. sent tells whether the request may have reached the member.
func judge(e *Error, sent bool) verdict {
	switch kind := kinds[e.Text]; kind {
	case nil:
	case ErrNoLeader:
		// Said before a request is proposed, and because calls ask for a leader.
		return verdict{again: true, elsewhere: true, sick: true}
	case ErrTooManyRequests:
		return verdict{again: true, elsewhere: true}
	case ErrLearnerUnsupported:
		return verdict{again: true, elsewhere: true, sick: true}
	case ErrInvalidAuthToken, ErrAuthOldRevision, ErrUserEmpty:
		return verdict{renew: true}
	case ErrServerStopped, ErrRequestTimeout, ErrTimeoutLeaderFailed, ErrTimeoutConnectionLost, ErrTimeoutApplying, ErrLeaderChanged:
		return verdict{again: true, elsewhere: true, unknown: true}
	case ErrRequestCanceled, ErrRequestDeadline:
		return verdict{unknown: true}
	default:
		return verdict{}
	}
	switch e.Code {
	case codes.Unavailable:
		return verdict{again: true, elsewhere: true, unknown: sent}
	case codes.Unauthenticated:
		return verdict{renew: true}
	case codes.Internal:
		return verdict{again: strings.Contains(e.Text, "RST_STREAM"), elsewhere: true, unknown: sent}
	case codes.ResourceExhausted:
		return verdict{unknown: sent && !strings.Contains(e.Text, "trying to send message larger than max")}
	case codes.Canceled, codes.DeadlineExceeded, codes.Unknown, codes.Aborted, codes.DataLoss:
		return verdict{unknown: sent}
	}
	return verdict{}
}
