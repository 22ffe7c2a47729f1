package peer

import (
	"bytes"
	"context"
	"sync"
	"time"

	"vigil/internal/member/calls"
)

// answer serves the calls of a stream, or with one set only the first.
func (t *Transport) answer(ctx context.Context, l *link, from Caller, one bool) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	slots := make(chan struct{}, t.o.MaxCalls)
	for {
		typ, payload, err := l.in.next()
		if err != nil {
			return err
		}
		if typ != frameRequest {
			known, err := l.handleCommon(typ, payload, nil)
			if err == nil && !known {
				err = refuse(CodeMalformed, "frame of type %d on a stream of calls", typ)
			}
			if err != nil {
				return err
			}
			continue
		}
		r, err := decodeRequest(payload)
		if err != nil {
			return err
		}
		if e := t.acceptable(&r, from); e != nil {
			err = l.respond(response{id: r.id, err: e})
		} else if one {
			err = t.serveOne(ctx, l, from, r)
		} else {
			select {
			case slots <- struct{}{}:
				r.payload = bytes.Clone(r.payload)
				wg.Go(func() {
					defer func() { <-slots }()
					if err := t.serveOne(ctx, l, from, r); err != nil {
						l.end(err)
					}
				})
			default:
				err = l.respond(response{id: r.id,
					err: refuse(CodeBusy, "%d calls are under way", t.o.MaxCalls)})
			}
		}
		if err != nil || one {
			return err
		}
	}
}

// acceptable returns why a call is rejected.
func (t *Transport) acceptable(r *request, from Caller) *Error {
	switch {
	case len(r.payload) > t.o.MaxCallBytes:
		return refuse(CodeTooLarge, "call of %d bytes, the most is %d", len(r.payload),
			t.o.MaxCallBytes)
	case from.Member == 0 && r.kind < calls.FirstOpen:
		return refuse(CodeUnknown, "calls of kind %d are for members of the cluster", r.kind)
	}
	return nil
}

// serveOne answers one call.
func (t *Transport) serveOne(ctx context.Context, l *link, from Caller, r request) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.millis)*time.Millisecond)
	defer cancel()
	out, err := t.receivers.Calls.ServeCall(ctx, from, r.kind, r.payload)
	resp := response{id: r.id, payload: out}
	switch {
	case err != nil:
		resp.err = asError(err)
	case len(out) > t.o.MaxCallBytes:
		resp.err = refuse(CodeTooLarge, "answer of %d bytes, the most is %d", len(out),
			t.o.MaxCallBytes)
	}
	return l.respond(resp)
}

func (l *link) respond(r response) error {
	return l.send(appendFrames(nil, frameResponse, r.encode()))
}
