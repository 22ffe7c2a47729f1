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

// watchStream is a stream of watchers through all its connections, each of which is a session.
type watchStream struct {
	r      *watches
	c      *Client // that of its first watcher; only core and pin count
	key    string
	alone  bool // it belongs to one watcher, for which it waits
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
	ids    map[int64]*Watcher // those created, or to be
	wait   []int64            // ids not answered yet, in the order they were asked for
	denied []*denial
	out    []*wire.WatchRequest
	wake   chan struct{} // holds an element when out is not empty
	// expired tells that a watcher was refused for its token, so the next session needs another. Owned by the
	// goroutine that receives.
	expired bool
}

// denial is a refusal, which does not say what is refused: one of those that were asked for before and have no
// answer yet. Servers answer in order, so it is the first; but all others are waited for, because a server that
// does not would have the wrong one ended.
type denial struct {
	among []int64
	resp  watchResponse
}

func newWatchStream(r *watches, c *Client, md metadata.MD, alone bool) *watchStream {
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

// remove forgets a watcher and reports whether it was the last.
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

// create asks for a watcher on the session; the lock is held.
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

// send queues a request; the lock is held.
func (s *watchStream) send(r *wire.WatchRequest) {
	s.mu.session.out = append(s.mu.session.out, r)
	signal(s.mu.session.wake)
}

// run serves the watchers of the stream and ends it. This is the only end of a stream: no watcher is left on one that
// nobody serves.
func (s *watchStream) run() {
	fate := s.serve()
	for _, w := range s.r.dissolve(s) {
		fate(w)
	}
}

// serve connects and receives until there are no watchers, or until they cannot stay here. It returns what is to
// become of each.
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
			// One of them breaks the stream: each gets one of its own.
			return func(w *Watcher) { s.r.attach(w, true) }
		case !v.again:
			return func(w *Watcher) {
				if on == nil || on[w] {
					w.finish(e)
				} else {
					s.r.attach(w, false) // it came later: the error may be about others
				}
			}
		}
		a.avoid = nil
		a.follow(v, e)
		if errors.Is(e, ErrNoLeader) {
			if leaderless++; leaderless >= s.members() {
				s.giveUp(list, e)
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

// members is how many a watcher can go to.
func (s *watchStream) members() int {
	if s.c.pin != nil {
		return 1
	}
	return s.r.core.pool.Size()
}

// giveUp ends the watchers that insist on a leader.
func (s *watchStream) giveUp(list []*Watcher, e *Error) {
	for _, w := range list {
		if w.spec.requireLeader {
			w.finish(e)
		}
	}
}

// lost notes that the watcher is not connected.
func (w *Watcher) lost(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.trouble = err
}

// connect opens a session and receives until it ends. answered tells that the server said anything, and on holds the
// watchers that it was asked for; it is nil if there was no session.
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
		s.r.core.tokens.Reject(a.pass)
	}
	err = ended(ctx, err)
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

// begin makes a session and asks for all watchers.
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

// sendAll sends what is queued. It is a goroutine of its own because sending waits for a server that
// waits for us to receive.
func (s *watchStream) sendAll(ctx context.Context, e *session, stream grpc.ClientStream) {
	for {
		s.mu.Lock()
		out := e.out
		e.out = nil
		s.mu.Unlock()
		for _, r := range out {
			if stream.SendMsg(r) != nil {
				return // receiving tells why
			}
		}
		select {
		case <-e.wake:
		case <-ctx.Done():
			return
		}
	}
}
