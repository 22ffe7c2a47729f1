package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"vigil/client/internal/attempt"
	"vigil/client/internal/credential"
	"vigil/client/internal/pool"
	"vigil/client/internal/request"
)

// attempts is the state of a call that is retried. Every call and stream of the package uses it:
// Next chooses the member and the credential, judge decides what follows from an error, and
// handleFailure acts on that.
type attempts struct {
	attempt.State
	core *core
	m    *method
	key  string
	last error // the last error of gRPC
}

func (c *Client) attempts(m *method, key string) attempts {
	return attempts{State: attempt.State{Pool: c.core.pool, Tokens: c.core.tokens, Pin: c.pin,
		Leader: m.leader}, core: c.core, m: m, key: key}
}

// makeAttempts makes attempts until one succeeds or its error is final. try makes one at a.At, with
// new state each time, and reports whether the request may have reached the member. After a success
// the caller must release a.At when it no longer uses the connection.
func (a *attempts) makeAttempts(ctx context.Context,
	try func(ctx context.Context) (sent bool, err error)) error {
	for {
		octx, err := a.nextAttempt(ctx)
		if err != nil {
			return err
		}
		sent, err := try(octx)
		if err == nil {
			return nil
		}
		a.At.Release()
		if err := a.handleFailure(ctx, err, sent); err != nil {
			return err
		}
	}
}

// nextAttempt obtains a member, which must be released, and a credential for another attempt.
func (a *attempts) nextAttempt(ctx context.Context) (context.Context, error) {
	octx, err := a.Next(ctx)
	if err != nil {
		return nil, a.localError(ctx, localCause(err))
	}
	return octx, nil
}

// localCause returns the error of this package for one of its internal packages.
func localCause(err error) error {
	if u, ok := err.(*pool.Unreachable); ok {
		return (*UnreachableError)(u)
	}
	if err == credential.ErrClosed {
		return ErrClosed
	}
	return err
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

// handleFailure acts on an error. It returns nil when it is time for another attempt.
func (a *attempts) handleFailure(ctx context.Context, err error, sent bool) error {
	core := a.core
	e := a.explain(ctx, err)
	v := judge(e, a.m, sent)
	a.MarkMember(v, e)
	e.Uncertain = a.m.write && v.Unknown
	if core.ctx.Err() != nil {
		return e
	}
	switch {
	case v.Renew && !a.RenewToken(v), !v.Renew && !v.Again,
		v.Again && (e.Uncertain || a.Count >= core.cfg.MaxAttempts):
		return e
	}
	if ctx.Err() == nil {
		timer := time.NewTimer(attempt.Pause(a.Count))
		defer timer.Stop()
		select {
		case <-timer.C:
			if h := core.cfg.Hooks.Retry; h != nil {
				h(a.m.name, a.At.Name(), a.Count+1, e)
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
	e := explain(ctx, a.m.op, a.key, a.Member(), err)
	if a.core.ctx.Err() != nil {
		a.last = ErrClosed
		e.kind, e.Text = ErrClosed, ErrClosed.Error()
	}
	return e
}

// judge decides what follows from an error. sent reports that the request may have reached the
// member.
func judge(e *Error, m *method, sent bool) attempt.Verdict {
	return attempt.Judge(attempt.Failure{Code: e.Code, Text: e.Text, API: kinds[e.Text] != nil,
		Caused:    e.kind != nil,
		Malformed: e.kind == request.ErrMalformed, Sent: sent, Lasting: m.lasting})
}

// Temporary reports whether an error of a call is about the member, the connection or the moment,
// so that the same call may succeed later. Other errors are about the call itself.
func Temporary(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok || errors.Is(e, ErrClosed) {
		return false
	}
	v := judge(e, &method{lasting: true}, false)
	return v.Again || v.Renew
}
