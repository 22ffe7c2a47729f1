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

// Config configures a mirror. Client and Decode must be set.
type Config[T any] struct {
	Client *client.Client
	// Key and Range are the mirrored keys. Default of Range: all keys that begin with Key. For a
	// single key use [client.WithRange](Key + "\x00").
	Key   string
	Range client.RangeOption
	// Decode decodes a stored value. It must not keep kv.Value, and its result must not be changed.
	Decode func(kv client.KeyValue) (T, error)
	// Indexes return the words under which [View.Find] finds an item; each must depend only on the
	// item. Items that cannot be decoded are in no index.
	Indexes map[string]func(*Item[T]) []string
	// OnChange is called for every change, in order, after [Mirror.View] shows it. The mirror waits
	// until it returns, and further events stay at the server. It must not call Close.
	OnChange func(Change[T])
	// Fresh is how often the mirror requests its progress from the server while nothing changes:
	// the resolution of [Status.Current]. Default 10s; negative means never.
	Fresh time.Duration
	// Logger receives the reasons why the mirror is not current. By default nothing is logged.
	Logger *slog.Logger
}

// Mirror is a copy of a range that follows the store. It is safe for concurrent use.
type Mirror[T any] struct {
	cfg    Config[T]
	cancel context.CancelCauseFunc
	view   atomic.Pointer[View[T]]
	ready  chan struct{} // closed after the first list
	done   chan struct{}
	store  uint64 // id of the cluster that was listed; owned by follow

	mu struct {
		sync.Mutex
		watcher     *client.Watcher // nil while there is none
		subscribers map[*subscriber[T]]struct{}
		moved       chan struct{} // closed at the next view; nil if no goroutine waits
		status      Status
		err         error
	}
}

// Status is the state of a mirror.
type Status struct {
	// Ready reports that there is a View.
	Ready bool
	// Revision is the revision of the View, and Keys its number of keys.
	Revision int64
	Keys     int
	// Current is when the View was last known to equal the store, zero before Ready: the mirror
	// lags at most by the time since then. While it follows the store, that is at most
	// [Config.Fresh] and a round trip.
	Current time.Time
	// Lists counts the lists: 1 after the first, more if the watch could not continue.
	Lists int
	// Trouble is why the mirror cannot follow the store now, nil if it can.
	Trouble error
}

// errClosed ends a mirror by Close.
var errClosed = errors.New("the mirror is closed")

// Follow mirrors all keys that begin with prefix, with the defaults of Config.
func Follow[T any](ctx context.Context, c *client.Client, prefix string,
	decode func(client.KeyValue) (T, error)) (*Mirror[T], error) {
	return Start(ctx, Config[T]{Client: c, Key: prefix, Decode: decode})
}

// Start starts a mirror, which runs until the context ends, the client is closed, or Close. It does
// not wait; see Ready.
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
	go m.follow(ctx)
	return m, nil
}

// Close ends the mirror and waits for its end. The last View remains.
func (m *Mirror[T]) Close() {
	m.cancel(errClosed)
	<-m.done
}

// Done returns a channel that is closed when the mirror has ended.
func (m *Mirror[T]) Done() <-chan struct{} { return m.done }

// Err returns why the mirror has ended: the cause of its context, or [client.ErrClosed]. It is nil
// before, and after Close.
func (m *Mirror[T]) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.err
}

// View returns the newest view. Before the first one it is empty and has revision 0.
func (m *Mirror[T]) View() *View[T] { return m.view.Load() }

// Ready returns a channel that is closed after the first view.
func (m *Mirror[T]) Ready() <-chan struct{} { return m.ready }

// Wait waits for the first view. If the context ends before, the error has the reason for the
// delay.
func (m *Mirror[T]) Wait(ctx context.Context) (*View[T], error) { return m.At(ctx, 1) }

// At waits for a view of at least a revision, for instance the revision of a write of this program
// or of another one. The error has the reason for the delay.
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
			watcher.RequestProgress() // the revision may not have changed the range
		}
		again := time.NewTimer(pause)
		select {
		case <-moved:
		case <-again.C:
			pause = min(2*pause, time.Second)
		case <-ctx.Done():
			return nil, m.waitError(context.Cause(ctx), revision, view, trouble)
		case <-m.done:
			return nil, m.waitError(errors.Join(errClosed, m.Err()), revision, view, nil)
		}
		again.Stop()
	}
}

func (m *Mirror[T]) waitError(err error, revision int64, view *View[T], trouble error) error {
	if trouble != nil {
		return fmt.Errorf("mirror of %q is at revision %d, not %d: %w: %w", m.cfg.Key,
			view.revision, revision, err, trouble)
	}
	return fmt.Errorf("mirror of %q is at revision %d, not %d: %w", m.cfg.Key,
		view.revision, revision, err)
}

// Status returns the state of the mirror.
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

// follow lists and watches until the context ends.
func (m *Mirror[T]) follow(ctx context.Context) {
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
			err = m.listRange(ctx, same)
			listed = err == nil
		}
		if listed {
			err = m.watchRange(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, client.ErrClosed):
			m.cancel(client.ErrClosed)
			return
		case errors.Is(err, client.ErrCompacted):
			// The events after the view are compacted. Unchanged items need not be decoded again.
			listed, same = false, true
		case errors.Is(err, client.ErrRolledBack), errors.Is(err, client.ErrClusterChanged):
			listed, same = false, false
		}
		if m.view.Load().revision != before {
			pause = 0
		}
		m.setTrouble(err)
		m.cfg.Logger.Warn("mirror interrupted", "key", m.cfg.Key, "revision",
			m.view.Load().revision, "list again", !listed,
			"after", pause, "error", err)
		select {
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		case <-ctx.Done():
		}
		pause = min(max(2*pause, 50*time.Millisecond), 5*time.Second)
	}
}

func (m *Mirror[T]) setTrouble(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.status.Trouble = err
}

// listRange replaces the view by the current state of the store. It keeps items of equal revisions
// if same is set and the cluster was listed before.
func (m *Mirror[T]) listRange(ctx context.Context, same bool) error {
	begun := time.Now()
	listing := m.cfg.Client.List(ctx, m.cfg.Key, m.cfg.Range)
	old, view := m.view.Load(), newView(m.cfg.Indexes)
	for kv, err := range listing.All() {
		if err != nil {
			return err
		}
		it, found := old.Get(kv.Key)
		if !same || !found || it.ModRevision != kv.ModRevision ||
			listing.Header().ClusterID != m.store {
			it = m.decodeItem(kv)
		}
		view.set(it)
	}
	view.revision, m.store = listing.Revision(), listing.Header().ClusterID
	m.mu.Lock()
	m.mu.status.Lists++
	m.mu.Unlock()
	m.publishView(view, view.diff(old), begun)
	return nil
}

// watchRange follows the store from the revision of the view on.
func (m *Mirror[T]) watchRange(ctx context.Context) error {
	w := m.cfg.Client.Watch(ctx, m.cfg.Key, m.cfg.Range,
		client.FromRevision(m.view.Load().revision+1), client.WithProgress())
	m.mu.Lock()
	m.mu.watcher = w
	m.mu.Unlock()
	stop := m.requestProgress(ctx, w)
	defer func() {
		m.mu.Lock()
		m.mu.watcher = nil
		m.mu.Unlock()
		w.Close()
		stop()
	}()
	if err := m.checkStore(ctx, w); err != nil {
		return err
	}
	for b, err := range w.Batches() {
		if err != nil {
			return err
		}
		view := m.view.Load()
		if b.Revision < view.revision {
			continue // progress from before the list
		}
		if len(b.Events) == 0 {
			m.publishView(view.at(b.Revision), nil, time.Now())
			continue
		}
		view = view.clone()
		changes := make([]Change[T], 0, len(b.Events))
		for _, ev := range b.Events {
			change := Change[T]{}
			if ev.Type == client.Put {
				change.New = m.decodeItem(ev.KV)
				change.Old = view.set(change.New)
			} else if change.Old = view.remove(ev.KV.Key); change.Old == nil {
				continue
			}
			changes = append(changes, change)
		}
		view.revision = b.Revision
		m.publishView(view, changes, time.Time{})
	}
	return errors.New("the watch ended")
}

// checkStore checks that the watch is of the store that was listed: it may have been replaced in
// between. Later the watcher checks that itself.
func (m *Mirror[T]) checkStore(ctx context.Context, w *client.Watcher) error {
	h, err := w.Created(ctx)
	rev := m.view.Load().revision
	if err == nil && h.ClusterID == m.store && h.Revision < rev {
		// The member lags behind the listed one, or the store was rolled back: a linearizable read
		// decides.
		var r *client.GetResponse
		if r, err = m.cfg.Client.Get(ctx, m.cfg.Key, m.cfg.Range,
			client.WithCountOnly()); err == nil {
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

// requestProgress requests the progress of the watch from time to time. A server does not answer
// while its store has nothing after the revision at which the watch begins. Then a read shows that
// the view is current.
func (m *Mirror[T]) requestProgress(ctx context.Context, w *client.Watcher) (stop func()) {
	if m.cfg.Fresh < 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	store := m.store
	var asker sync.WaitGroup
	asker.Go(func() {
		tick := time.NewTicker(m.cfg.Fresh)
		defer tick.Stop()
		for last := time.Now(); ; {
			w.RequestProgress()
			select {
			case <-tick.C:
			case <-w.Done():
				return
			}
			// The answer to the request before has had the time of a tick.
			if m.Status().Current.Before(last) {
				m.confirmCurrent(ctx, store)
			}
			last = time.Now()
		}
	})
	return func() {
		cancel()
		asker.Wait()
	}
}

// confirmCurrent notes that the view is current if the store has its revision.
func (m *Mirror[T]) confirmCurrent(ctx context.Context, store uint64) {
	// Without a leader the read would delay the next request.
	ctx, cancel := context.WithTimeout(ctx, max(m.cfg.Fresh, time.Second))
	defer cancel()
	begun := time.Now()
	r, err := m.cfg.Client.Get(ctx, m.cfg.Key, m.cfg.Range, client.WithCountOnly())
	if err != nil || r.Header.ClusterID != store {
		return // the watch finds out why
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := &m.mu.status; m.view.Load().revision == r.Header.Revision && s.Current.Before(begun) {
		s.Current = begun
	}
}

func (m *Mirror[T]) decodeItem(kv client.KeyValue) *Item[T] {
	it := &Item[T]{Key: strings.Clone(kv.Key), CreateRevision: kv.CreateRevision,
		ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
	if it.Value, it.Err = m.cfg.Decode(kv); it.Err != nil {
		var none T
		it.Value = none
		m.cfg.Logger.Warn("mirror cannot decode a value", "key", kv.Key, "revision", kv.ModRevision,
			"error", it.Err)
	}
	return it
}

// publishView publishes a view and the changes since the last one. current is when it equalled the
// store, zero if that is not known.
func (m *Mirror[T]) publishView(view *View[T], changes []Change[T], current time.Time) {
	m.mu.Lock()
	m.view.Store(view)
	s := &m.mu.status
	s.Trouble = nil
	if !current.IsZero() {
		s.Current = current
	}
	if len(changes) > 0 {
		for sub := range m.mu.subscribers {
			sub.addChanges(changes)
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
