package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"vigil/client/internal/attempt"
	"vigil/client/internal/pool"
	"vigil/client/internal/request"
	"vigil/client/internal/session"
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
		list    map[*Watcher]bool
		session *watchSession // nil while there is none
	}
}

// watchSession is a connection of a watchStream. The embedded Session is guarded by watchStream.mu.
type watchSession struct {
	*session.Session[*Watcher, watchResponse]
	at *pool.Member
	// expired: a watcher was refused because of the token, so the next session needs another. Owned by the goroutine that
	// receives.
	expired bool
}

func newWatchStream(r *watchers, c *Client, md metadata.MD, alone bool) *watchStream {
	s := &watchStream{r: r, c: &Client{core: c.core, pin: c.pin}, alone: alone}
	ctx := c.core.ctx
	if len(md) > 0 {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	s.mu.list = map[*Watcher]bool{}
	return s
}

func (s *watchStream) add(w *Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.list[w] = true
	if s.mu.session != nil {
		s.create(w)
	}
}

// remove removes a watcher and reports whether it was the last. The watcher receives nothing more from the stream, of which
// messages can still arrive: it may be on another one already.
func (s *watchStream) remove(w *Watcher) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.list, w)
	last := len(s.mu.list) == 0
	switch e := s.mu.session; {
	case e == nil:
	case last: // the end of the stream cancels it
		e.Forget(w)
	default:
		e.Cancel(w)
	}
	return last
}

func (s *watchStream) watchers() []*Watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.mu.list))
}

func (s *watchStream) askProgress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.session != nil {
		s.mu.session.RequestProgress()
	}
}

// create requests a watcher on the session. The lock is held.
func (s *watchStream) create(w *Watcher) {
	s.mu.session.Create(w, &request.WatchCreate{Key: w.spec.key, End: w.spec.end, Start: w.resumeFrom(),
		Progress: w.spec.progress, NoPut: w.spec.noPut, NoDelete: w.spec.noDelete, PrevKV: w.spec.prevKV})
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
	a := s.c.attempts(&watchMethod, "")
	leaderless := 0
	for failures := 0; ; {
		began := time.Now()
		answered, on, err := s.connect(&a)
		if s.ctx.Err() != nil {
			return func(w *Watcher) { w.finish(ErrClosed) }
		}
		if answered {
			leaderless = 0
			a.Answered()
		}
		// Answers are no reason to connect at once: a server may end each stream after the first.
		if answered && time.Since(began) >= time.Second {
			failures = 0
		}
		failures++
		e := a.explain(s.ctx, err)
		list := s.watchers()
		s.c.core.cfg.Logger.Info("a watch stream ended", "endpoint", a.Member(), "watchers", len(list), "error", e.Text)
		if h := s.c.core.cfg.Hooks.Watch; h != nil {
			h(WatchChange{Kind: WatchDisconnected, Member: a.Member(), Watchers: len(list), Err: e})
		}
		v := judge(e, &watchMethod, false)
		if v.Renew {
			v.Again = a.Renew(v)
		}
		switch {
		case e.Code == codes.ResourceExhausted && e.kind == nil && len(on) > 1:
			// One of the watchers breaks the stream: each gets a stream of its own.
			return func(w *Watcher) { s.r.attach(w, true) }
		case !v.Again:
			return func(w *Watcher) {
				if on == nil || on[w] {
					w.finish(e)
				} else {
					s.r.attach(w, false) // a new watcher: the error may be about others
				}
			}
		}
		a.Avoid = nil
		a.Mark(v, e)
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
		case <-time.After(attempt.Pause(failures)):
		case <-s.ctx.Done():
		}
	}
}

// members returns how many members a watcher can use.
func (s *watchStream) members() int {
	if s.c.pin != nil {
		return 1
	}
	return s.c.core.pool.Size()
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
	defer a.At.Release()
	stream, err := a.At.Conn().NewStream(octx, watchDesc, watchMethod.name)
	if err != nil {
		return false, nil, err
	}
	if s.c.pin == nil {
		at := a.At
		defer a.OnLeave(func() {
			if !at.Listed() || s.members() > 1 {
				cancel(attempt.ErrLeft)
			}
		})()
	}
	e := s.begin(a.At)
	if h := s.c.core.cfg.Hooks.Watch; h != nil {
		h(WatchChange{Kind: WatchConnected, Member: a.At.Name(), Watchers: len(s.watchers())})
	}
	sending := make(chan struct{})
	s.c.core.tasks.Go(func() {
		defer close(sending)
		s.sendAll(ctx, e, stream)
	})
	answered, err = s.receive(ctx, e, stream)
	if e.expired {
		s.c.core.tokens.Reject(a.Credential)
	}
	err = attempt.StreamError(ctx, err)
	s.mu.Lock()
	s.mu.session, on = nil, maps.Clone(s.mu.list)
	s.mu.Unlock()
	cancel(nil)
	<-sending
	return answered, on, err
}

// begin creates a session and requests all watchers.
func (s *watchStream) begin(at *pool.Member) *watchSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &watchSession{Session: session.New[*Watcher, watchResponse](), at: at}
	s.mu.session = e
	asked := false
	for w := range s.mu.list {
		s.create(w)
		w.mu.Lock()
		asked = asked || w.mu.inbox.ProgressRequested()
		w.mu.Unlock()
	}
	if asked {
		e.RequestProgress()
	}
	return e
}

// sendAll sends the queued requests. It has its own goroutine because sending can block until the server receives, and the
// server can block until the client receives.
func (s *watchStream) sendAll(ctx context.Context, e *watchSession, stream grpc.ClientStream) {
	for {
		s.mu.Lock()
		out := e.TakeRequests()
		s.mu.Unlock()
		for _, r := range out {
			if stream.SendMsg(r) != nil {
				return // RecvMsg returns why
			}
		}
		select {
		case <-e.Wake:
		case <-ctx.Done():
			return
		}
	}
}
