package client

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"

	"vigil/client/internal/inbox"
	"vigil/client/internal/request"
	"vigil/client/internal/session"
)

// script is a stream of messages, each made when it is received.
type script struct {
	grpc.ClientStream
	messages []func() (watchResponse, error)
}

func (s *script) RecvMsg(m any) (err error) {
	next := s.messages[0]
	s.messages = s.messages[1:]
	*m.(*watchResponse), err = next()
	return err
}

// TestStreamEndsWhileWaitingForRoom: when a stream ends while an event waits for room, the messages
// after it are not delivered. gRPC returns those that arrived before.
func TestStreamEndsWhileWaitingForRoom(t *testing.T) {
	s, e := &watchStream{alone: true},
		&watchSession{Session: session.New[*Watcher, watchResponse]()}
	w := &Watcher{c: &Client{}, ready: make(chan struct{}, 1), room: make(chan struct{}, 1),
		done: make(chan struct{})}
	w.mu.inbox = inbox.New(2, 1, false, func(e *Event) int64 { return e.KV.ModRevision })
	create := &request.WatchCreate{Start: 2}
	e.RequestWatcher(w, create)
	e.RecordCreated(create.ID, 4)
	ctx, cancel := context.WithCancel(t.Context())
	put := func(rev int64) watchResponse {
		return watchResponse{id: create.ID, events: []Event{{KV: KeyValue{ModRevision: rev}}}}
	}
	broken := errors.New("the stream has ended")
	pop := func() {
		w.mu.inbox.Pop()
	}
	_, err := s.receiveMessages(ctx, e, &script{messages: []func() (watchResponse, error){
		func() (watchResponse, error) { return put(2), nil },
		func() (watchResponse, error) {
			cancel()
			return put(3), nil // no room
		},
		func() (watchResponse, error) {
			pop()
			return put(4), nil
		},
		func() (watchResponse, error) { return watchResponse{}, broken },
	}})
	if next := w.resumeFrom(); next != 3 || err == nil {
		t.Errorf("resumes from %d, want 3: %v", next, err)
	}
}
