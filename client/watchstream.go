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
	// expired: a watcher was refused because of the token, so the next session needs another. Owned
	// by the goroutine that receives.
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

func (s *watchStream) addWatcher(w *Watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.list[w] = true
	if s.mu.session != nil {
		s.requestWatcher(w)
	}
}

// removeWatcher removes a watcher and reports whether it was the last. The watcher receives nothing
// more from the stream, of which messages can still arrive: it may be on another one already.
func (s *watchStream) removeWatcher(w *Watcher) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.list, w)
	last := len(s.mu.list) == 0
	switch e := s.mu.session; {
	case e == nil:
	case last: // the end of the stream cancels it
		e.ForgetWatcher(w)
	default:
		e.CancelWatcher(w)
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

// requestWatcher requests a watcher on the session. The lock is held.
func (s *watchStream) requestWatcher(w *Watcher) {
	s.mu.session.RequestWatcher(w,
		&request.WatchCreate{Key: w.spec.key, End: w.spec.end, Start: w.resumeFrom(),
			Progress: w.spec.progress, NoPut: w.spec.noPut, NoDelete: w.spec.noDelete,
			PrevKV: w.spec.prevKV})
}

// serveUntilEnd serves the watchers of the stream and then ends it. Streams end only here, so no
// watcher stays on a stream without a goroutine.
func (s *watchStream) serveUntilEnd() {
	fate := s.serveSessions()
	for _, w := range s.r.dissolveStream(s) {
		fate(w)
	}
}

// serveSessions connects and receives until there are no watchers, or until they cannot stay on the
// stream. It returns a function that decides what happens to each watcher.
func (s *watchStream) serveSessions() (fate func(*Watcher)) {
	a := s.c.attempts(&watchMethod, "")
	leaderless := 0
	for failures := 0; ; {
		began := time.Now()
		answered, on, err := s.serveSession(&a)
		if s.ctx.Err() != nil {
			return func(w *Watcher) { w.finish(ErrClosed) }
		}
		if answered {
			leaderless = 0
			a.RecordAnswer()
		}
		// Answers do not reset the pause: a server may end each stream after its first answer.
		if answered && time.Since(began) >= time.Second {
			failures = 0
		}
		failures++
		e := a.explain(s.ctx, err)
		list := s.watchers()
		s.c.core.cfg.Logger.Info("a watch stream ended", "endpoint", a.Member(), "watchers",
			len(list), "error", e.Text)
		if h := s.c.core.cfg.Hooks.Watch; h != nil {
			h(WatchChange{Kind: WatchDisconnected, Member: a.Member(), Watchers: len(list), Err: e})
		}
		v := judge(e, &watchMethod, false)
		if v.Renew {
			v.Again = a.RenewToken(v)
		}
		switch {
		case e.Code == codes.ResourceExhausted && e.kind == nil && len(on) > 1:
			// One of the watchers breaks the stream: each gets a separate one.
			return func(w *Watcher) { s.r.attachWatcher(w, true) }
		case !v.Again:
			return func(w *Watcher) {
				if on == nil || on[w] {
					w.finish(e)
				} else {
					s.r.attachWatcher(w, false) // a new watcher: the error may be about others
				}
			}
		}
		a.Avoid = nil
		a.MarkMember(v, e)
		if errors.Is(e, ErrNoLeader) {
			if leaderless++; leaderless >= s.countMembers() {
				s.endLeaderless(list, e)
			}
		}
		for _, w := range list {
			w.recordTrouble(e)
		}
		if s.alone && answered {
			return func(w *Watcher) { s.r.attachWatcher(w, false) }
		}
		select {
		case <-time.After(attempt.Pause(failures)):
		case <-s.ctx.Done():
		}
	}
}

// countMembers returns how many members a watcher can use.
func (s *watchStream) countMembers() int {
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

// recordTrouble records that the watcher is not connected.
func (w *Watcher) recordTrouble(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.trouble = err
}

// serveSession opens a session and receives until it ends. answered reports that the server sent an
// answer. on holds the watchers that were requested; it is nil if there was no session.
func (s *watchStream) serveSession(a *attempts) (answered bool, on map[*Watcher]bool, err error) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	octx, err := a.nextAttempt(ctx)
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
			if !at.Listed() || s.countMembers() > 1 {
				cancel(attempt.ErrLeft)
			}
		})()
	}
	e := s.beginSession(a.At)
	if h := s.c.core.cfg.Hooks.Watch; h != nil {
		h(WatchChange{Kind: WatchConnected, Member: a.At.Name(), Watchers: len(s.watchers())})
	}
	sending := make(chan struct{})
	s.c.core.tasks.Go(func() {
		defer close(sending)
		s.sendRequests(ctx, e, stream)
	})
	answered, err = s.receiveMessages(ctx, e, stream)
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

// beginSession creates a session and requests all watchers.
func (s *watchStream) beginSession(at *pool.Member) *watchSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &watchSession{Session: session.New[*Watcher, watchResponse](), at: at}
	s.mu.session = e
	asked := false
	for w := range s.mu.list {
		s.requestWatcher(w)
		w.mu.Lock()
		asked = asked || w.mu.inbox.ProgressRequested()
		w.mu.Unlock()
	}
	if asked {
		e.RequestProgress()
	}
	return e
}

// sendRequests sends the queued requests. It has its own goroutine because sending can block until
// the server receives, and the server can block until the client receives.
func (s *watchStream) sendRequests(ctx context.Context, e *watchSession, stream grpc.ClientStream) {
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
