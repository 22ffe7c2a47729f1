package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vigil/client"
)

// Config says what is mirrored and how. Client and Decode must be set.
type Config[T any] struct {
	Client *client.Client
	// Key and Range are what is mirrored. Default of Range: all keys that begin with Key. A single key has
	// client.WithRange(Key + "\x00").
	Key   string
	Range client.RangeOption
	// Decode makes a value of what is stored. It must not keep kv.Value, and what it returns must not be changed.
	Decode func(kv client.KeyValue) (T, error)
	// Indexes give the words under which View.Find finds an item; each must be a function of the item alone.
	// Items that cannot be decoded are in no index.
	Indexes map[string]func(*Item[T]) []string
	// OnChange is called for every change, in order, when Mirror.View shows it. The mirror waits meanwhile, and
	// what happens is kept by the server. It must not call Close.
	OnChange func(Change[T])
	// Fresh is how often the server is asked how far the mirror is, while nothing changes: the resolution of
	// Status.Current. Default 10s; negative means never.
	Fresh time.Duration
	// Logger gets what keeps the mirror from being current. Default: nothing.
	Logger *slog.Logger
}

// Mirror is a copy of a range that follows the store. It is safe for concurrent use.
type Mirror[T any] struct {
	cfg    Config[T]
	cancel context.CancelCauseFunc
	view   atomic.Pointer[View[T]]
	ready  chan struct{} // closed when the first list is there
	done   chan struct{}
	store  uint64 // id of the cluster that was listed; owned by run

	mu struct {
		sync.Mutex
		watcher     *client.Watcher // nil while there is none
		subscribers map[*subscriber[T]]struct{}
		moved       chan struct{} // closed at the next step; nil if nobody waits
		status      Status
		err         error
	}
}

// Status is how a mirror is.
type Status struct {
	// Ready tells that there is a View.
	Ready bool
	// Revision and Keys are those of the View.
	Revision int64
	Keys     int
	// Current is when the View was last known to be what the store has, zero before Ready: the time since then
	// is how far the mirror may be behind. While it follows, that is at most Config.Fresh and a round trip.
	Current time.Time
	// Lists counts the lists: 1 after the first, more when the watch could not go on.
	Lists int
	// Trouble is what keeps the mirror from following just now, nil if nothing does.
	Trouble error
}

// errClosed ends a mirror by Close.
var errClosed = errors.New("the mirror is closed")

// Follow mirrors all keys that begin with prefix, with the defaults of Config.
func Follow[T any](ctx context.Context, c *client.Client, prefix string, decode func(client.KeyValue) (T, error)) (*Mirror[T], error) {
	return Start(ctx, Config[T]{Client: c, Key: prefix, Decode: decode})
}

// Start begins to mirror, until the context ends, the client is closed, or Close. It waits for nothing: see Ready.
func Start[T any](ctx context.Context, cfg Config[T]) (*Mirror[T], error) {
	switch {
	case cfg.Client == nil:
		return nil, errors.New("mirror: Config.Client is not set")
	case cfg.Decode == nil:
		return nil, errors.New("mirror: Config.Decode is not set; for instance mirror.String")
	}
	if cfg.Range == nil {
		cfg.Range = client.WithPrefix()
	}
	if cfg.Fresh == 0 {
		cfg.Fresh = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Mirror[T]{cfg: cfg, ready: make(chan struct{}), done: make(chan struct{})}
	m.mu.subscribers = map[*subscriber[T]]struct{}{}
	m.view.Store(newView(cfg.Indexes))
	ctx, m.cancel = context.WithCancelCause(ctx)
	go m.run(ctx)
	return m, nil
}

// Close ends the mirror and waits until it has. The last View stays.
func (m *Mirror[T]) Close() {
	m.cancel(errClosed)
	<-m.done
}

// Done returns a channel that is closed when the mirror has ended.
func (m *Mirror[T]) Done() <-chan struct{} { return m.done }

// Err returns why the mirror has ended: the cause of its context, or client.ErrClosed. It is nil before, and after Close.
func (m *Mirror[T]) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.err
}

// View returns the newest view, an empty one of revision 0 before there is any.
func (m *Mirror[T]) View() *View[T] { return m.view.Load() }

// Ready returns a channel that is closed when there is a first view.
func (m *Mirror[T]) Ready() <-chan struct{} { return m.ready }

// Wait waits for the first view. If the context ends before, the error says what is in the way.
func (m *Mirror[T]) Wait(ctx context.Context) (*View[T], error) { return m.At(ctx, 1) }

// At waits for a view that shows at least a revision, such as that of a write of one's own or one that another program
// has told. The error says what is in the way.
func (m *Mirror[T]) At(ctx context.Context, revision int64) (*View[T], error) {
	pause := 50 * time.Millisecond
	for {
		m.mu.Lock()
		view := m.view.Load()
		if view.revision >= revision {
			m.mu.Unlock()
			return view, nil
		}
		if m.mu.moved == nil {
			m.mu.moved = make(chan struct{})
		}
		moved, watcher, trouble := m.mu.moved, m.mu.watcher, m.mu.status.Trouble
		m.mu.Unlock()
		if watcher != nil {
			watcher.RequestProgress() // the revision may be one that changed nothing here
		}
		again := time.NewTimer(pause)
		select {
		case <-moved:
		case <-again.C:
			pause = min(2*pause, time.Second)
		case <-ctx.Done():
			return nil, m.waited(context.Cause(ctx), revision, view, trouble)
		case <-m.done:
			return nil, m.waited(errors.Join(errClosed, m.Err()), revision, view, nil)
		}
		again.Stop()
	}
}

func (m *Mirror[T]) waited(err error, revision int64, view *View[T], trouble error) error {
	if trouble != nil {
		return fmt.Errorf("mirror of %q is at revision %d, not %d: %w: %w", m.cfg.Key, view.revision, revision, err, trouble)
	}
	return fmt.Errorf("mirror of %q is at revision %d, not %d: %w", m.cfg.Key, view.revision, revision, err)
}

// Status returns how the mirror is.
func (m *Mirror[T]) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, view := m.mu.status, m.view.Load()
	s.Revision, s.Keys = view.revision, view.Len()
	if w := m.mu.watcher; w != nil && s.Trouble == nil {
		s.Trouble = w.Status().Trouble
	}
	return s
}

// run lists and watches until the context ends.
func (m *Mirror[T]) run(ctx context.Context) {
	defer close(m.done)
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if err := context.Cause(ctx); err != errClosed {
			m.mu.err = err
		}
	}()
	listed, same := false, false
	var pause time.Duration
	for ctx.Err() == nil {
		before := m.view.Load().revision
		var err error
		if !listed {
			err = m.list(ctx, same)
			listed = err == nil
		}
		if listed {
			err = m.watch(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, client.ErrClosed):
			m.cancel(client.ErrClosed)
			return
		case errors.Is(err, client.ErrCompacted):
			// What follows the view is gone. Items that are the same need not be decoded again.
			listed, same = false, true
		case errors.Is(err, client.ErrRolledBack), errors.Is(err, client.ErrClusterChanged):
			listed, same = false, false
		}
		if m.view.Load().revision != before {
			pause = 0
		}
		m.trouble(err)
		m.cfg.Logger.Warn("mirror interrupted", "key", m.cfg.Key, "revision", m.view.Load().revision, "list again", !listed,
			"after", pause, "error", err)
		select {
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		case <-ctx.Done():
		}
		pause = min(max(2*pause, 50*time.Millisecond), 5*time.Second)
	}
}

func (m *Mirror[T]) trouble(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.status.Trouble = err
}

// list replaces the view by what the store has now. An item of an equal revision is the same if same is set and the
// cluster is the one that was listed before.
func (m *Mirror[T]) list(ctx context.Context, same bool) error {
	begun := time.Now()
	listing := m.cfg.Client.List(ctx, m.cfg.Key, m.cfg.Range)
	old, view := m.view.Load(), newView(m.cfg.Indexes)
	for kv, err := range listing.All() {
		if err != nil {
			return err
		}
		it, found := old.Get(kv.Key)
		if !same || !found || it.ModRevision != kv.ModRevision || listing.Header().ClusterID != m.store {
			it = m.item(kv)
		}
		view.set(it)
	}
	view.revision, m.store = listing.Revision(), listing.Header().ClusterID
	m.mu.Lock()
	m.mu.status.Lists++
	m.mu.Unlock()
	m.publish(view, view.diff(old), begun)
	return nil
}

// watch follows the store from the view on.
func (m *Mirror[T]) watch(ctx context.Context) error {
	w := m.cfg.Client.Watch(ctx, m.cfg.Key, m.cfg.Range, client.FromRevision(m.view.Load().revision+1), client.WithProgress())
	m.mu.Lock()
	m.mu.watcher = w
	m.mu.Unlock()
	stop := m.ask(w)
	defer func() {
		m.mu.Lock()
		m.mu.watcher = nil
		m.mu.Unlock()
		w.Close()
		stop()
	}()
	if err := m.same(ctx, w); err != nil {
		return err
	}
	for b, err := range w.Batches() {
		if err != nil {
			return err
		}
		view := m.view.Load()
		if b.Revision < view.revision {
			continue // progress that was on its way
		}
		if len(b.Events) == 0 {
			m.publish(view.at(b.Revision), nil, time.Now())
			continue
		}
		view = view.clone()
		changes := make([]Change[T], 0, len(b.Events))
		for _, ev := range b.Events {
			change := Change[T]{}
			if ev.Type == client.Put {
				change.New = m.item(ev.KV)
				change.Old = view.set(change.New)
			} else if change.Old = view.remove(ev.KV.Key); change.Old == nil {
				continue
			}
			changes = append(changes, change)
		}
		view.revision = b.Revision
		m.publish(view, changes, time.Time{})
	}
	return errors.New("the watch ended")
}

// same sees that the watch is of the store that was listed: another may have taken its place in between. Later the
// watcher itself does.
func (m *Mirror[T]) same(ctx context.Context, w *client.Watcher) error {
	h, err := w.Created(ctx)
	rev := m.view.Load().revision
	if err == nil && h.ClusterID == m.store && h.Revision < rev {
		// The member is behind the one that was listed, or the store has gone back: a quorum knows.
		var r *client.GetResponse
		if r, err = m.cfg.Client.Get(ctx, m.cfg.Key, m.cfg.Range, client.WithCountOnly()); err == nil {
			h = r.Header
		}
	}
	switch {
	case err != nil:
		return err
	case h.ClusterID != m.store:
		return client.ErrClusterChanged
	case h.Revision < rev:
		return client.ErrRolledBack
	}
	return nil
}

// ask asks the server now and then how far the watch is.
func (m *Mirror[T]) ask(w *client.Watcher) (stop func()) {
	if m.cfg.Fresh < 0 {
		return func() {}
	}
	var asker sync.WaitGroup
	asker.Go(func() {
		tick := time.NewTicker(m.cfg.Fresh)
		defer tick.Stop()
		for {
			w.RequestProgress()
			select {
			case <-tick.C:
			case <-w.Done():
				return
			}
		}
	})
	return asker.Wait
}

func (m *Mirror[T]) item(kv client.KeyValue) *Item[T] {
	it := &Item[T]{Key: strings.Clone(kv.Key), CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
	if it.Value, it.Err = m.cfg.Decode(kv); it.Err != nil {
		var none T
		it.Value = none
		m.cfg.Logger.Warn("mirror cannot decode a value", "key", kv.Key, "revision", kv.ModRevision, "error", it.Err)
	}
	return it
}

// publish shows a view and tells the changes that lead to it. current is when it was what the store had, zero if that
// is not known.
func (m *Mirror[T]) publish(view *View[T], changes []Change[T], current time.Time) {
	m.mu.Lock()
	m.view.Store(view)
	s := &m.mu.status
	s.Trouble = nil
	if !current.IsZero() {
		s.Current = current
	}
	if len(changes) > 0 {
		for sub := range m.mu.subscribers {
			sub.add(changes)
		}
	}
	if m.mu.moved != nil {
		close(m.mu.moved)
		m.mu.moved = nil
	}
	first := !s.Ready
	s.Ready = true
	m.mu.Unlock()
	if first {
		close(m.ready)
	}
	if m.cfg.OnChange != nil {
		for _, c := range changes {
			m.cfg.OnChange(c)
		}
	}
}
