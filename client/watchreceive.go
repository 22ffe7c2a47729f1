package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
)

// errToken ends a session because a watcher was refused because of its token.
var errToken = fmt.Errorf("watch refused: %w", ErrInvalidAuthToken)

// receiveMessages delivers messages to the watchers until the session ends.
func (s *watchStream) receiveMessages(ctx context.Context, e *watchSession,
	stream grpc.ClientStream) (answered bool, err error) {
	var r watchResponse
	for {
		if err := stream.RecvMsg(&r); err != nil {
			return answered, err
		}
		answered = true
		if err := s.handleMessage(ctx, e, &r); err != nil {
			return answered, err
		}
	}
}

// handleMessage handles one message.
func (s *watchStream) handleMessage(ctx context.Context, e *watchSession, r *watchResponse) error {
	switch {
	case r.created:
		return s.handleCreated(e, r)
	case r.canceled:
		s.mu.Lock()
		w, ok := e.RemoveID(r.id)
		s.mu.Unlock()
		if ok {
			return s.handleCanceled(e, w, r, true)
		}
	case r.id == -1:
		s.handleProgress(e, r.header.Revision)
	default:
		s.mu.Lock()
		w, ok := e.Watcher(r.id)
		s.mu.Unlock()
		switch {
		case !ok:
			// The watcher was canceled before the message arrived.
		case len(r.events) == 0 && !r.fragment:
			w.recordProgress(r.header.Revision)
		default:
			return s.deliverEvents(ctx, e, w, r)
		}
	}
	return nil
}

// deliverEvents delivers events to a watcher, or sets it aside if it has no room. An error ends the
// session: after the end of its context gRPC still returns messages that arrived before, and those
// must not follow events that were not delivered.
func (s *watchStream) deliverEvents(ctx context.Context, e *watchSession, w *Watcher,
	r *watchResponse) error {
	for !w.addEvents(r, s.alone) {
		if !s.alone {
			s.r.setAside(w, e.at.Name())
			return nil
		}
		select {
		case <-w.room:
		case <-w.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// handleProgress reports progress of the whole stream to its watchers.
func (s *watchStream) handleProgress(e *watchSession, rev int64) {
	s.mu.Lock()
	list := e.RecordProgress(rev)
	s.mu.Unlock()
	for _, w := range list {
		w.recordProgress(rev)
	}
}

// handleCreated handles the answer to a create request, in any order of answers.
func (s *watchStream) handleCreated(e *watchSession, r *watchResponse) error {
	s.mu.Lock()
	var w *Watcher
	began, known := false, true
	if r.canceled {
		e.RecordRefusal(*r)
	} else {
		w, began, known = e.RecordCreated(r.id, r.header.Revision)
	}
	refused := e.TakeRefused()
	s.mu.Unlock()

	if !known {
		s.c.core.cfg.Logger.Warn("a server created a watcher that was not requested", "endpoint",
			e.at.Name(), "id", r.id)
	}
	if began {
		behind, err := w.recordCreated(r.header)
		if err != nil {
			w.finish(err)
		} else if behind {
			s.c.core.tasks.Go(w.checkRollback)
		}
	}
	var failed error
	for _, x := range refused {
		if err := s.handleCanceled(e, x.Watcher, &x.Why, false); err != nil {
			failed = err
		}
	}
	return failed
}

// handleCanceled ends a watcher that the server has refused or canceled, unless a retry may help.
// An error ends the session, and the watcher continues on the next one.
func (s *watchStream) handleCanceled(e *watchSession, w *Watcher, r *watchResponse,
	created bool) error {
	err := &CanceledError{Reason: r.reason, Created: created, kind: kindOf(r.reason)}
	again := &Error{Op: watchMethod.op, Member: e.at.Name(), Text: trimCode(r.reason),
		kind: err.kind}
	v := judge(again, &watchMethod, false)
	switch {
	case r.compact != 0 || errors.Is(err.kind, ErrCompacted):
		w.finish(&CompactedError{Revision: r.compact})
	case !created && strings.Contains(r.reason, "duplicate watch ID"):
		// Request it with another id.
		if w.countRetry(&w.mu.renewed) {
			s.mu.Lock()
			if s.mu.list[w] {
				s.requestWatcher(w)
			}
			s.mu.Unlock()
			return nil
		}
		w.finish(err)
	case v.Renew && (v.Again || s.c.core.tokens.Renewable()) && w.countRetry(&w.mu.renewed):
		e.expired = true
		return errToken
	case v.Again && !v.Renew && (!errors.Is(err.kind, ErrCorrupt) || w.countRetry(&w.mu.damaged)):
		return again
	default:
		w.finish(err)
	}
	return nil
}

// countRetry reports whether to request a watcher again that was refused, or that needs damaged
// data: a few times. count counts them.
func (w *Watcher) countRetry(count *int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	*count++
	return !w.mu.ended && *count <= 3
}
