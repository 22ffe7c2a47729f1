package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"vigil/client/internal/pool"
	"vigil/client/internal/wire"
)

var (
	watchMethod = stream("Watch", "Watch", "watch")
	watchDesc   = &grpc.StreamDesc{StreamName: "Watch", ServerStreams: true, ClientStreams: true}
)

// watchStream serves watchers through consecutive connections, called sessions.
type watchStream struct {
	r      *watchers
	c      *Client // of the first watcher; only core and pin matter
	key    string
	alone  bool // it has a single watcher, and waits for its reader
	ctx    context.Context
	cancel context.CancelFunc
	mu     struct {
		sync.Mutex
		list    map[*Watcher]int64 // with the id on the session, 0 if none
		session *session           // nil while there is none
	}
}

// session is a connection of a watchStream. Its fields are guarded by watchStream.mu.
type session struct {
	at     *pool.Member
	last   int64              // the last id given
	ids    map[int64]*Watcher // created, or to be created
	wait   []int64            // ids without an answer, in the order of the requests
	denied []*denial
	out    []*wire.WatchRequest
	wake   chan struct{} // holds an element when out is not empty
	// expired: a watcher was refused because of the token, so the next session needs another. Owned by the goroutine that
	// receives.
	expired bool
}

// denial is a refusal. It does not name the refused request, which is one of the earlier requests without an answer.
// Servers answer in order, so it is the first one. But the client waits until the others have answers, so that a server
// that does not keep the order ends no other watcher.
type denial struct {
	among []int64
	resp  watchResponse
}

func newWatchStream(r *watchers, c *Client, md metadata.MD, alone bool) *watchStream {
	s := &watchStream{r: r, c: &Client{core: c.core, pin: c.pin}, alone: alone}
	ctx := r.core.ctx
	if len(md) > 0 {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.mu.list = map[*Watcher]int64{}
	return s
}

func (s *watchStream) add(w *Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.list[w] = 0
	if s.mu.session != nil {
		s.create(w)
	}
}

// remove removes a watcher and reports whether it was the last.
func (s *watchStream) remove(w *Watcher) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.mu.list[w]
	delete(s.mu.list, w)
	if id != 0 && len(s.mu.list) > 0 {
		delete(s.mu.session.ids, id)
		s.send(&wire.WatchRequest{Cancel: id})
	}
	return len(s.mu.list) == 0
}

func (s *watchStream) watchers() []*Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Watcher, 0, len(s.mu.list))
	for w := range s.mu.list {
		list = append(list, w)
	}
	return list
}

func (s *watchStream) askProgress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.session != nil {
		s.send(&wire.WatchRequest{})
	}
}

// create requests a watcher on the session. The lock is held.
func (s *watchStream) create(w *Watcher) {
	e := s.mu.session
	e.last++
	id := e.last
	s.mu.list[w] = id
	e.ids[id] = w
	e.wait = append(e.wait, id)
	s.send(&wire.WatchRequest{Create: &wire.WatchCreate{Key: w.spec.key, End: w.spec.end, Start: w.resumeFrom(), ID: id,
		Progress: w.spec.progress, NoPut: w.spec.noPut, NoDelete: w.spec.noDelete, PrevKV: w.spec.prevKV}})
}

// send queues a request. The lock is held.
func (s *watchStream) send(r *wire.WatchRequest) {
	s.mu.session.out = append(s.mu.session.out, r)
	signal(s.mu.session.wake)
}

// run serves the watchers of the stream and then ends it. Streams end only here, so no watcher stays on a stream without
// a goroutine.
func (s *watchStream) run() {
	fate := s.serve()
	for _, w := range s.r.dissolve(s) {
		fate(w)
	}
}

// serve connects and receives until there are no watchers, or until they cannot stay on the stream. It returns what to do
// with each.
func (s *watchStream) serve() (fate func(*Watcher)) {
	a := attempts{c: s.c, m: &watchMethod}
	leaderless := 0
	for failures := 0; ; {
		answered, on, err := s.connect(&a)
		if s.ctx.Err() != nil {
			return func(w *Watcher) { w.finish(ErrClosed) }
		}
		if answered {
			failures, leaderless = 0, 0
			a.answered()
		}
		failures++
		e := a.explain(s.ctx, err)
		list := s.watchers()
		s.r.core.cfg.Logger.Info("a watch stream ended", "endpoint", a.where(), "watchers", len(list), "error", e.Text)
		if h := s.r.core.cfg.Hooks.Watch; h != nil {
			h(WatchChange{Kind: WatchDisconnected, Member: a.where(), Watchers: len(list), Err: e})
		}
		v := judge(e, &watchMethod, false)
		if v.renew {
			v.again = a.renew()
		}
		switch {
		case e.Code == codes.ResourceExhausted && e.kind == nil && len(on) > 1:
			// One of the watchers breaks the stream: each gets a stream of its own.
			return func(w *Watcher) { s.r.attach(w, true) }
		case !v.again:
			return func(w *Watcher) {
				if on == nil || on[w] {
					w.finish(e)
				} else {
					s.r.attach(w, false) // a new watcher: the error may be about others
				}
			}
		}
		a.avoid = nil
		a.markMember(v, e)
		if errors.Is(e, ErrNoLeader) {
			if leaderless++; leaderless >= s.members() {
				s.endLeaderless(list, e)
			}
		}
		for _, w := range list {
			w.lost(e)
		}
		if s.alone && answered {
			return func(w *Watcher) { s.r.attach(w, false) }
		}
		select {
		case <-time.After(pause(failures)):
		case <-s.ctx.Done():
		}
	}
}

// members returns how many members a watcher can use.
func (s *watchStream) members() int {
	if s.c.pin != nil {
		return 1
	}
	return s.r.core.pool.Size()
}

// endLeaderless ends the watchers that require a leader.
func (s *watchStream) endLeaderless(list []*Watcher, e *Error) {
	for _, w := range list {
		if w.spec.requireLeader {
			w.finish(e)
		}
	}
}

// lost records that the watcher is not connected.
func (w *Watcher) lost(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.trouble = err
}

// connect opens a session and receives until it ends. answered reports that the server sent an answer. on holds the
// watchers that were requested; it is nil if there was no session.
func (s *watchStream) connect(a *attempts) (answered bool, on map[*Watcher]bool, err error) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	octx, err := a.next(ctx)
	if err != nil {
		return false, nil, err
	}
	defer a.at.Release()
	stream, err := a.at.Conn().NewStream(octx, watchDesc, watchMethod.name)
	if err != nil {
		return false, nil, err
	}
	if s.c.pin == nil {
		defer a.at.OnLeave(a.departs, func() {
			if !a.at.Listed() || s.members() > 1 {
				cancel(errLeft)
			}
		})()
	}
	e := s.begin(a.at)
	if h := s.r.core.cfg.Hooks.Watch; h != nil {
		h(WatchChange{Kind: WatchConnected, Member: a.at.Name(), Watchers: len(s.watchers())})
	}
	sending := make(chan struct{})
	s.r.core.tasks.Go(func() {
		defer close(sending)
		s.sendAll(ctx, e, stream)
	})
	answered, err = s.receive(ctx, e, stream)
	if e.expired {
		s.r.core.tokens.Reject(a.credential)
	}
	err = streamError(ctx, err)
	s.mu.Lock()
	s.mu.session = nil
	on = make(map[*Watcher]bool, len(s.mu.list))
	for w := range s.mu.list {
		s.mu.list[w], on[w] = 0, true
	}
	s.mu.Unlock()
	cancel(nil)
	<-sending
	return answered, on, err
}

// begin creates a session and requests all watchers.
func (s *watchStream) begin(at *pool.Member) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &session{at: at, ids: map[int64]*Watcher{}, wake: make(chan struct{}, 1)}
	s.mu.session = e
	asked := false
	for w := range s.mu.list {
		s.create(w)
		w.mu.Lock()
		asked = asked || w.mu.asked
		w.mu.Unlock()
	}
	if asked {
		s.send(&wire.WatchRequest{})
	}
	return e
}

// sendAll sends the queued requests. It has its own goroutine because sending can block until the server receives, and the
// server can block until the client receives.
func (s *watchStream) sendAll(ctx context.Context, e *session, stream grpc.ClientStream) {
	for {
		s.mu.Lock()
		out := e.out
		e.out = nil
		s.mu.Unlock()
		for _, r := range out {
			if stream.SendMsg(r) != nil {
				return // RecvMsg returns why
			}
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
			return
		}
	}
}
