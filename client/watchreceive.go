package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
)

// errToken ends a session because a watcher was refused because of its token.
var errToken = fmt.Errorf("watch refused: %w", ErrInvalidAuthToken)

// receive delivers messages to the watchers until the session ends.
func (s *watchStream) receive(ctx context.Context, e *session, stream grpc.ClientStream) (answered bool, err error) {
	var r watchResponse
	for {
		if err := stream.RecvMsg(&r); err != nil {
			return answered, err
		}
		answered = true
		if err := s.handle(ctx, e, &r); err != nil {
			return answered, err
		}
	}
}

// handle handles one message.
func (s *watchStream) handle(ctx context.Context, e *session, r *watchResponse) error {
	switch {
	case r.created:
		return s.handleCreated(e, r)
	case r.canceled:
		s.mu.Lock()
		w := e.forget(r.id)
		if w != nil {
			s.mu.list[w] = 0
		}
		s.mu.Unlock()
		if w != nil {
			return s.handleCanceled(e, w, r, true)
		}
	case r.id == -1:
		s.handleProgress(e, r.header.Revision)
	default:
		s.mu.Lock()
		w := e.ids[r.id]
		s.mu.Unlock()
		switch {
		case w == nil:
			// The watcher was canceled before the message arrived.
		case len(r.events) == 0 && !r.fragment:
			w.reached(r.header.Revision)
		default:
			s.deliver(ctx, e, w, r)
		}
	}
	return nil
}

// deliver delivers events to a watcher, or sets it aside if it has no room.
func (s *watchStream) deliver(ctx context.Context, e *session, w *Watcher, r *watchResponse) {
	for w.take(r, s.alone) == full {
		if !s.alone {
			s.r.setAside(w, e.at.Name())
			return
		}
		select {
		case <-w.room:
		case <-w.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// handleProgress reports progress of the whole stream to all created watchers.
func (s *watchStream) handleProgress(e *session, rev int64) {
	s.mu.Lock()
	var list []*Watcher
	for id, w := range e.ids {
		if !slices.Contains(e.wait, id) {
			list = append(list, w)
		}
	}
	s.mu.Unlock()
	for _, w := range list {
		w.reached(rev)
	}
}

// forget removes an id. The lock is held.
func (e *session) forget(id int64) *Watcher {
	w := e.ids[id]
	delete(e.ids, id)
	return w
}

// handleCreated handles the answer to a create request, in any order of answers.
func (s *watchStream) handleCreated(e *session, r *watchResponse) error {
	s.mu.Lock()
	var began *Watcher
	if r.canceled {
		e.denied = append(e.denied, &denial{among: slices.Clone(e.wait), resp: *r})
	} else {
		at := slices.Index(e.wait, r.id)
		if at < 0 && e.ids[r.id] == nil && len(e.wait) > 0 {
			// The server assigns its own ids, and answers in order.
			at = 0
			e.ids[r.id] = e.forget(e.wait[0])
			if w := e.ids[r.id]; w != nil {
				s.mu.list[w] = r.id
			}
		}
		if at >= 0 {
			began = e.ids[r.id]
			e.removeWaiting(e.wait[at])
		} else {
			s.r.core.cfg.Logger.Warn("a server created a watcher that was not requested", "endpoint", e.at.Name(), "id", r.id)
		}
	}
	type refusal struct {
		w    *Watcher
		resp *watchResponse
	}
	var refused []refusal
	for {
		id, d := e.nextDenied()
		if d == nil {
			break
		}
		e.removeWaiting(id)
		if w := e.forget(id); w != nil {
			s.mu.list[w] = 0
			refused = append(refused, refusal{w, &d.resp})
		}
	}
	s.mu.Unlock()

	if began != nil {
		behind, err := began.start(r.header)
		if err != nil {
			began.finish(err)
		} else if behind {
			s.r.core.tasks.Go(func() { s.r.checkRollback(began) })
		}
	}
	var failed error
	for _, x := range refused {
		if err := s.handleCanceled(e, x.w, x.resp, false); err != nil {
			failed = err
		}
	}
	return failed
}

// removeWaiting removes an id that has its answer. The lock is held.
func (e *session) removeWaiting(id int64) {
	same := func(x int64) bool { return x == id }
	e.wait = slices.DeleteFunc(e.wait, same)
	for _, d := range e.denied {
		d.among = slices.DeleteFunc(d.among, same)
	}
}

// nextDenied returns a refusal and its id if that is certain: if as many ids wait as there are refusals, the refusals
// belong to them in order. The lock is held.
func (e *session) nextDenied() (id int64, d *denial) {
	for len(e.denied) > 0 && len(e.denied[0].among) == 0 {
		e.denied = e.denied[1:] // its watcher was canceled before
	}
	if len(e.denied) == 0 {
		return 0, nil
	}
	d = e.denied[0]
	// Later refusals may belong to these ids too.
	if len(d.among) > len(e.denied) {
		return 0, nil
	}
	e.denied = e.denied[1:]
	return d.among[0], d
}

// handleCanceled ends a watcher that the server has refused or canceled, unless a retry may help. An error ends the session,
// and the watcher continues on the next one.
func (s *watchStream) handleCanceled(e *session, w *Watcher, r *watchResponse, created bool) error {
	err := &CanceledError{Reason: r.reason, Created: created, kind: kindOf(r.reason)}
	again := &Error{Op: watchMethod.op, Member: e.at.Name(), Text: trimCode(r.reason), kind: err.kind}
	v := judge(again, &watchMethod, false)
	switch {
	case r.compact != 0 || errors.Is(err.kind, ErrCompacted):
		w.finish(&CompactedError{Revision: r.compact})
	case !created && strings.Contains(r.reason, "duplicate watch ID"):
		// Request it with another id.
		if w.retry() {
			s.mu.Lock()
			if _, here := s.mu.list[w]; here {
				s.create(w)
			}
			s.mu.Unlock()
			return nil
		}
		w.finish(err)
	case v.renew && s.r.core.tokens.Renewable() && w.retry():
		e.expired = true
		return errToken
	case v.again:
		return again
	default:
		w.finish(err)
	}
	return nil
}

// retry reports whether to request a refused watcher again: a few times.
func (w *Watcher) retry() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.renewed++
	return !w.mu.ended && w.mu.renewed <= 3
}
