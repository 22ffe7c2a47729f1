package client

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"vigil/client/internal/attempt"
	"vigil/client/internal/session"
)

// watchers holds the watchers of a client and their streams.
//
// Locks are taken in the order watchers.mu, watchStream.mu, Watcher.mu.
type watchers struct {
	mu struct {
		sync.Mutex
		shared map[string]*watchStream
		all    map[*Watcher]struct{}
		closed bool
	}
}

func newWatchers() *watchers {
	r := new(watchers)
	r.mu.shared = map[string]*watchStream{}
	r.mu.all = map[*Watcher]struct{}{}
	return r
}

// attachWatcher puts a watcher on the stream that all watchers with the same metadata and member
// share, or on a separate one if alone is set.
func (r *watchers) attachWatcher(w *Watcher, alone bool) {
	r.mu.Lock()
	closed := r.mu.closed
	if !closed {
		r.placeOnStream(w, alone)
	}
	r.mu.Unlock()
	if closed {
		w.finish(ErrClosed)
	}
}

// placeOnStream is attachWatcher with the lock held.
func (r *watchers) placeOnStream(w *Watcher, alone bool) {
	w.mu.Lock()
	ended := w.mu.ended
	w.mu.Unlock()
	if ended {
		delete(r.mu.all, w)
		return
	}
	r.mu.all[w] = struct{}{}
	md, _ := metadata.FromOutgoingContext(w.ctx)
	key := session.Key(w.c.pin.Name(), md)
	s := r.mu.shared[key]
	if alone || s == nil {
		s = newWatchStream(r, w.c, md, alone)
		if !alone {
			s.key = key
			r.mu.shared[key] = s
		}
		w.c.core.tasks.Go(s.serveUntilEnd)
	}
	w.stream = s
	s.addWatcher(w)
}

// removeWatcher removes a watcher that has ended from its stream.
func (r *watchers) removeWatcher(w *Watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.all, w)
	r.removeFromStream(w)
}

// removeFromStream removes a watcher from its stream, which ends if it was the last. The lock is
// held.
func (r *watchers) removeFromStream(w *Watcher) {
	s := w.stream
	if s == nil {
		return
	}
	w.stream = nil
	if s.removeWatcher(w) {
		r.endStream(s)
	}
}

// endStream ends a stream. The lock is held.
func (r *watchers) endStream(s *watchStream) {
	if r.mu.shared[s.key] == s {
		delete(r.mu.shared, s.key)
	}
	s.cancel()
}

// setAside removes a watcher with a full buffer from the shared stream.
func (r *watchers) setAside(w *Watcher, at string) {
	cfg := &w.c.core.cfg
	cfg.Logger.Info("set a watcher aside that is not read fast enough", "buffer", w.spec.buffer)
	if h := cfg.Hooks.Watch; h != nil {
		h(WatchChange{Kind: WatchSetAside, Member: at, Watchers: 1})
	}
	if w.spec.lagError {
		w.finish(&LagError{Revision: w.resumeFrom()})
		return
	}
	r.mu.Lock()
	r.removeFromStream(w)
	r.mu.Unlock()
	r.resumeAlone(w) // its reader may have made room
}

// resumeAlone puts a watcher that was set aside on a separate stream if half of its buffer has been
// read.
func (r *watchers) resumeAlone(w *Watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed || w.stream != nil {
		return
	}
	w.mu.Lock()
	ready := w.mu.inbox.TryResume()
	w.mu.Unlock()
	if ready {
		r.placeOnStream(w, true)
	}
}

// dissolveStream ends a stream and returns its watchers without a stream. New watchers get another
// stream.
func (r *watchers) dissolveStream(s *watchStream) (list []*Watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range s.watchers() {
		if w.stream == s {
			r.removeFromStream(w)
			list = append(list, w)
		}
	}
	r.endStream(s)
	return list
}

// requestProgress sends a watcher's request for progress.
func (r *watchers) requestProgress(w *Watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.stream != nil {
		w.stream.askProgress()
	}
}

func (r *watchers) finishAll() {
	r.mu.Lock()
	r.mu.closed = true
	var list []*Watcher
	for w := range r.mu.all {
		list = append(list, w)
	}
	r.mu.Unlock()
	for _, w := range list {
		w.finish(ErrClosed)
	}
}

// checkRollback ends the watcher if the store has lost revisions, and not only the member lags. It
// reads a watched key linearizably, for which the watcher's permission suffices. It retries until
// there is an answer, because the watcher would miss the events of revisions that are assigned
// again; if there can be none, the watcher ends.
func (w *Watcher) checkRollback() {
	core := w.c.core
	ctx, cancel := context.WithCancel(w.ctx) // with its metadata
	defer cancel()
	stop := context.AfterFunc(core.ctx, cancel)
	defer stop()
	defer w.endRollbackCheck()
	any := &Client{core: core}
	key := cmp.Or(w.spec.key, "\x00")
	for n := 1; ; n++ {
		w.mu.Lock()
		ended, seen, cluster := w.mu.ended, w.mu.inbox.Store(), w.mu.header.ClusterID
		w.mu.Unlock()
		if ended {
			return
		}
		resp, err := any.Get(ctx, key, WithKeysOnly())
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && resp.Header.ClusterID != cluster:
			w.finish(ErrClusterChanged)
			return
		case err == nil && resp.Header.Revision < seen:
			w.finish(fmt.Errorf("%w: it was at %d and is at %d", ErrRolledBack, seen,
				resp.Header.Revision))
			return
		case err == nil:
			return
		}
		core.cfg.Logger.Warn("cannot check whether the store was rolled back", "seen",
			seen, "error", err)
		if !Temporary(err) {
			w.finish(fmt.Errorf("it is not known whether the store was rolled back: %w", err))
			return
		}
		select {
		case <-time.After(attempt.Pause(n)):
		case <-w.done:
			return
		case <-ctx.Done():
			return
		}
	}
}
