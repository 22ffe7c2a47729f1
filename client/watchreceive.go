package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
)

// errToken ends a session because a watcher was refused for its token.
var errToken = fmt.Errorf("watch refused: %w", ErrInvalidAuthToken)

// receive hands what comes to the watchers until the session ends.
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

// handle does what one message asks for.
func (s *watchStream) handle(ctx context.Context, e *session, r *watchResponse) error {
	switch {
	case r.created:
		return s.answered(e, r)
	case r.canceled:
		s.mu.Lock()
		w := e.forget(r.id)
		if w != nil {
			s.mu.list[w] = 0
		}
		s.mu.Unlock()
		if w != nil {
			return s.canceled(e, w, r, true)
		}
	case r.id == -1:
		s.reached(e, r.header.Revision)
	default:
		s.mu.Lock()
		w := e.ids[r.id]
		s.mu.Unlock()
		switch {
		case w == nil:
			// It was canceled, and this was on its way.
		case len(r.events) == 0 && !r.fragment:
			w.reached(r.header.Revision)
		default:
			s.deliver(ctx, e, w, r)
		}
	}
	return nil
}

// deliver gives a watcher its events, or sets it aside if it has no room.
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

// reached tells all watchers that have been created about progress of the whole stream.
func (s *watchStream) reached(e *session, rev int64) {
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

// forget removes an id; the lock is held.
func (e *session) forget(id int64) *Watcher {
	w := e.ids[id]
	delete(e.ids, id)
	return w
}

// answered handles the answer to a create request, whatever the order in which answers come.
func (s *watchStream) answered(e *session, r *watchResponse) error {
	s.mu.Lock()
	var began *Watcher
	if r.canceled {
		e.denied = append(e.denied, &denial{among: slices.Clone(e.wait), resp: *r})
	} else {
		at := slices.Index(e.wait, r.id)
		if at < 0 && e.ids[r.id] == nil && len(e.wait) > 0 {
			// A server that gives ids of its own, in order.
			at = 0
			e.ids[r.id] = e.forget(e.wait[0])
			if w := e.ids[r.id]; w != nil {
				s.mu.list[w] = r.id
			}
		}
		if at >= 0 {
			began = e.ids[r.id]
			e.settled(e.wait[at])
		} else {
			s.r.core.cfg.Logger.Warn("a server created a watcher that was not asked for", "endpoint", e.at.Name(), "id", r.id)
		}
	}
	type refusal struct {
		w    *Watcher
		resp *watchResponse
	}
	var refused []refusal
	for {
		id, d := e.decided()
		if d == nil {
			break
		}
		e.settled(id)
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
			s.r.core.tasks.Go(func() { s.r.rolledBack(began) })
		}
	}
	var failed error
	for _, x := range refused {
		if err := s.canceled(e, x.w, x.resp, false); err != nil {
			failed = err
		}
	}
	return failed
}

// settled notes that an id has its answer; the lock is held.
func (e *session) settled(id int64) {
	same := func(x int64) bool { return x == id }
	e.wait = slices.DeleteFunc(e.wait, same)
	for _, d := range e.denied {
		d.among = slices.DeleteFunc(d.among, same)
	}
}

// decided returns a refusal of which it is clear whom it means: when as many ids wait that it may mean as there are
// refusals, they are meant in order. The lock is held.
func (e *session) decided() (id int64, d *denial) {
	for len(e.denied) > 0 && len(e.denied[0].among) == 0 {
		e.denied = e.denied[1:] // it means a watcher that was canceled before
	}
	if len(e.denied) == 0 {
		return 0, nil
	}
	d = e.denied[0]
	// Later refusals may mean these ids too.
	if len(d.among) > len(e.denied) {
		return 0, nil
	}
	e.denied = e.denied[1:]
	return d.among[0], d
}

// canceled ends a watcher that the server has refused or ended, unless trying again may help. An error ends the
// session, and the watcher goes on on the next.
func (s *watchStream) canceled(e *session, w *Watcher, r *watchResponse, created bool) error {
	err := &CanceledError{Reason: r.reason, Created: created, kind: meaning(r.reason)}
	again := &Error{Op: watchMethod.op, Member: e.at.Name(), Text: words(r.reason), kind: err.kind}
	v := judge(again, &watchMethod, false)
	switch {
	case r.compact != 0 || errors.Is(err.kind, ErrCompacted):
		w.finish(&CompactedError{Revision: r.compact})
	case !created && strings.Contains(r.reason, "duplicate watch ID"):
		// It is asked for under another id.
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

// retry reports whether a refused watcher is to be asked for again: a few times.
func (w *Watcher) retry() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.renewed++
	return !w.mu.ended && w.mu.renewed <= 3
}
