package client

import (
	"context"
	"iter"
	"sync"

	"vigil/client/internal/inbox"
	"vigil/client/internal/namespace"
)

// watchSpec is the range of a watcher and its options.
type watchSpec struct {
	key, end        string
	start           int64
	progress        bool
	noPut, noDelete bool
	prevKV          bool
	buffer          int
	lagError        bool
	requireLeader   bool
}

// FromRevision starts a watch at a revision: its events are the first. Without it a watch starts
// with the events after its creation. If the revision has been compacted, the watch ends with a
// [CompactedError]. The watch waits for a future revision.
func FromRevision(rev int64) WatchOption {
	return watchOption(func(s *watchSpec) { s.start = rev })
}

// WithoutPuts leaves puts out.
func WithoutPuts() WatchOption { return watchOption(func(s *watchSpec) { s.noPut = true }) }

// WithoutDeletes leaves deletions out.
func WithoutDeletes() WatchOption { return watchOption(func(s *watchSpec) { s.noDelete = true }) }

// WithProgress delivers a Batch without events from time to time while there are none, so that the
// reader knows how far the watch is.
func WithProgress() WatchOption { return watchOption(func(s *watchSpec) { s.progress = true }) }

// WithBuffer sets how many bytes of events may wait for the reader, instead of
// [Config.WatchBuffer].
func WithBuffer(bytes int) WatchOption {
	return watchOption(func(s *watchSpec) { s.buffer = bytes })
}

// WithLagError ends the watch with a [LagError] when its buffer is full, instead of leaving events
// on the server until they are read.
func WithLagError() WatchOption { return watchOption(func(s *watchSpec) { s.lagError = true }) }

// WithRequireLeader ends the watch with [ErrNoLeader] when no member has a leader. Without it the
// watch continues as soon as a member has one.
func WithRequireLeader() WatchOption {
	return watchOption(func(s *watchSpec) { s.requireLeader = true })
}

// Batch holds the events of one or several whole revisions, in order.
type Batch struct {
	// Revision is how far the watch is: all events up to and including it have been delivered.
	Revision int64
	// Events is empty if the batch only reports progress.
	Events []Event
}

// Watcher delivers the changes of a key or a range, exactly once and in order. If an event cannot
// be delivered, the iteration ends with the reason.
//
// When its member is lost or has no leader, the watcher continues at another one after the last
// revision that it has received. It ends with an error when that is impossible ([CompactedError],
// [ErrClusterChanged], [ErrRolledBack]), when the server ends or refuses it ([CanceledError], with
// the meaning found by errors.Is), when its context ends, and on [WithLagError] and
// [WithRequireLeader].
//
// Unread events stay in a buffer of bounded size; an empty buffer takes one batch of any size. When
// the buffer is full, the watcher leaves the stream that it shares with others, so that they need
// not wait. When half of the buffer has been read, the watcher continues on a separate stream. The
// client receives from it no faster than the watcher is read, so unread events stay at the server.
// With the next connection the watcher returns to the shared stream.
//
// One goroutine at a time may iterate. A loop after another continues where the first one stopped.
// A watcher lives until its context ends or Close is called, even if it is not read.
type Watcher struct {
	c       *Client
	ctx     context.Context
	spec    watchSpec
	ready   chan struct{} // holds an element when the queue may have a batch
	room    chan struct{} // holds an element when the buffer may have room
	created chan struct{} // closed when the server has answered, or at the end
	done    chan struct{} // closed at the end
	stream  *watchStream  // guarded by watchers.mu; nil while set aside or at the end
	rest    []Event       // the rest of the batch in Events; owned by the reader

	mu struct {
		sync.Mutex
		inbox   inbox.Inbox[Event]
		header  Header
		known   bool // header is set: it was created once
		renewed int  // attempts after a refusal
		damaged int  // members without an event, because of damaged data
		ended   bool
		err     error       // why, nil if it was closed
		trouble error       // why it is not connected
		asking  bool        // a check for a rollback is running
		detach  func() bool // forgets the context
	}
}

// Watch watches a key, or several with a [RangeOption]. It does not wait; errors end the iteration.
func (c *Client) Watch(ctx context.Context, key string, opts ...WatchOption) *Watcher {
	w := &Watcher{c: c, ctx: ctx, spec: watchSpec{key: key, buffer: c.core.cfg.WatchBuffer},
		ready: make(chan struct{}, 1), room: make(chan struct{}, 1), created: make(chan struct{}),
		done: make(chan struct{})}
	for _, o := range opts {
		o.applyWatch(&w.spec)
	}
	s := &w.spec
	empty := key == "" && s.end == ""
	c.ns.Place(&s.key, &s.end)
	w.mu.inbox = inbox.New(s.start, s.buffer, s.progress,
		func(e *Event) int64 { return e.KV.ModRevision })
	switch {
	case empty:
		w.finish(&Error{Op: watchMethod.op, Text: ErrEmptyKey.Error(), kind: ErrEmptyKey})
	case s.end != "" && s.end != namespace.ToTheEnd && s.end <= s.key:
		w.finish(invalid("watch of %q up to %q: the range is empty", key, s.end))
	case s.start < 0:
		w.finish(invalid("watch from revision %d: it cannot be negative", s.start))
	case s.buffer < 0:
		w.finish(invalid("watch with a buffer of %d bytes: it cannot be negative", s.buffer))
	default:
		detach := context.AfterFunc(ctx, func() { w.finish(context.Cause(ctx)) })
		w.mu.Lock()
		w.mu.detach = detach
		w.mu.Unlock()
		c.core.watch.attachWatcher(w, false)
	}
	return w
}

// Close ends the watcher. A running iteration ends without an error.
func (w *Watcher) Close() { w.finish(nil) }

// Created waits until the server has created the watcher and returns the header of its answer:
// without [FromRevision] the watcher delivers all events above its revision. If the watch was
// refused, it returns why.
func (w *Watcher) Created(ctx context.Context) (Header, error) {
	select {
	case <-w.created:
	case <-ctx.Done():
		return Header{}, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.known {
		return w.mu.header, nil
	}
	if w.mu.err == nil {
		return Header{}, ErrClosed
	}
	return Header{}, w.mu.err
}

// Err returns why the watcher has ended, nil if it has not or was closed.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}

// Done returns a channel that is closed when the watcher has ended. Events received before can
// still be read.
func (w *Watcher) Done() <-chan struct{} { return w.done }

// WatchStatus is the state of a watcher.
type WatchStatus struct {
	// Next is the revision from which the watcher would resume, 0 before it was created.
	Next int64
	// Queued is the number of unread bytes.
	Queued int
	// SetAside reports that its buffer was full and that less than half has been read since.
	SetAside bool
	// Trouble is why it is not connected, nil if it is.
	Trouble error
}

// Status returns the state of the watcher.
func (w *Watcher) Status() WatchStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return WatchStatus{Next: w.mu.inbox.Next(), Queued: w.mu.inbox.Bytes(),
		SetAside: w.mu.inbox.IsAside(), Trouble: w.mu.trouble}
}

// RequestProgress requests a progress notification. When all watchers of the stream have caught up,
// a Batch without events and with the revision is delivered. A server that cannot answer at once
// does not answer at all, so callers should repeat the request after a while.
func (w *Watcher) RequestProgress() {
	w.mu.Lock()
	w.mu.inbox.RequestProgress()
	w.mu.Unlock()
	w.c.core.watch.requestProgress(w)
}

// Events iterates over the events. An error is yielded without an event and ends the iteration.
func (w *Watcher) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			for len(w.rest) > 0 {
				ev := w.rest[0]
				w.rest = w.rest[1:]
				if !yield(ev, nil) {
					return
				}
			}
			b, more, err := w.nextBatch()
			if err != nil {
				yield(Event{}, err)
			}
			if !more {
				return
			}
			w.rest = b.Events
		}
	}
}

// Batches iterates over batches of events, and over progress. An error is yielded without a batch
// and ends the iteration.
func (w *Watcher) Batches() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		if n := len(w.rest); n > 0 {
			b := Batch{Revision: w.rest[n-1].KV.ModRevision, Events: w.rest}
			w.rest = nil
			if !yield(b, nil) {
				return
			}
		}
		for {
			b, more, err := w.nextBatch()
			if err != nil {
				yield(Batch{}, err)
			}
			if !more || !yield(b, nil) {
				return
			}
		}
	}
}

// nextBatch waits for the next batch. more is false at the end.
func (w *Watcher) nextBatch() (b Batch, more bool, err error) {
	for {
		w.mu.Lock()
		if x, ok := w.mu.inbox.Pop(); ok {
			low := w.mu.inbox.IsHalfEmpty()
			resume := w.mu.inbox.IsAside() && low
			w.mu.Unlock()
			if low {
				wake(w.room)
			}
			if resume {
				w.c.core.watch.resumeAlone(w)
			}
			return Batch{x.Revision, x.Events}, true, nil
		}
		ended, err := w.mu.ended, w.mu.err
		w.mu.Unlock()
		if ended {
			return Batch{}, false, err
		}
		select {
		case <-w.ready:
		case <-w.done:
		}
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// finish ends the watcher, with an error or without. It must not be called with a lock held.
func (w *Watcher) finish(err error) {
	w.mu.Lock()
	if w.mu.ended {
		w.mu.Unlock()
		return
	}
	w.mu.ended, w.mu.err = true, err
	if !w.mu.known {
		close(w.created)
	}
	w.mu.inbox.DropIncomplete()
	close(w.done)
	detach := w.mu.detach
	w.mu.Unlock()
	if detach != nil {
		detach()
	}
	w.c.core.watch.removeWatcher(w)
}

// addEvents adds the events of a message to the inbox. If there is no room for all, it adds none
// and returns false, and the watcher is set aside, unless the stream waits.
func (w *Watcher) addEvents(r *watchResponse, waits bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := &w.mu.inbox
	if w.mu.ended || in.IsAside() {
		return true
	}
	events, size := r.events, in.Size(r.size, len(r.events))
	if !in.Fits(size) {
		if !waits {
			in.SetAside()
		}
		return false
	}
	if n := len(w.c.ns.Prefix); n > 0 {
		for i := range events {
			w.c.ns.stripOne(&events[i].KV)
			w.c.ns.stripOne(events[i].PrevKV)
		}
	}
	w.mu.damaged = 0
	if in.Add(events, size, r.fragment) {
		wake(w.ready)
	}
	return true
}

// recordProgress records that all events up to a revision have been received.
func (w *Watcher) recordProgress(rev int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.ended && w.mu.inbox.RecordProgress(rev) {
		wake(w.ready)
	}
}

// recordCreated records that the server has created the watcher. behind reports that the member's
// revision is lower than a known one, and that no check for a rollback is running.
func (w *Watcher) recordCreated(h Header) (behind bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.trouble, w.mu.renewed = nil, 0
	if w.mu.ended {
		return false, nil
	}
	if !w.mu.known {
		w.mu.known, w.mu.header = true, h
		w.mu.inbox.RecordCreated(h.Revision)
		close(w.created)
		return false, nil
	}
	if h.ClusterID != w.mu.header.ClusterID {
		return false, ErrClusterChanged
	}
	behind = w.mu.inbox.RecordStore(h.Revision) && !w.mu.asking
	w.mu.asking = w.mu.asking || behind
	return behind, nil
}

// endRollbackCheck records that the check for a rollback has ended.
func (w *Watcher) endRollbackCheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.asking = false
}

// resumeFrom returns the revision with which a stream creates the watcher. It drops an incomplete
// revision.
func (w *Watcher) resumeFrom() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.inbox.DropIncomplete()
	return w.mu.inbox.Next()
}
