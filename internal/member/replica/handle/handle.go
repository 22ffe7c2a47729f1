// Package handle has the store of a member: the one that it works on now, which an installed
// snapshot replaces.
//
// # Invariants
//
//  1. One goroutine, apply, retires a store and replaces it. A retired store is not written any
//     more. It is read until the next one serves, and after that until its log is closed.
//  2. A read that was under way when its store was replaced is repeated on the next one, if the old
//     one cannot finish it.
package handle

import (
	"context"
	"errors"
	"sync/atomic"

	"vigil/internal/kv"
	"vigil/internal/state/lease"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// Handle is the store that the state machine works on: its history on disk and its index.
type Handle struct {
	Log   *history.Log
	Store *mvcc.Store
	// Leases are the leases of the state machine, to be read.
	Leases *lease.State

	// retired is closed when nothing is written here any more, replaced when another handle serves.
	retired, replaced chan struct{}
}

// New returns the handle of a store.
func New(log *history.Log, store *mvcc.Store, leases *lease.State) *Handle {
	return &Handle{Log: log, Store: store, Leases: leases, retired: make(chan struct{}),
		replaced: make(chan struct{})}
}

// Retire notes that nothing is written here any more.
func (h *Handle) Retire() { close(h.retired) }

// IsRetired reports whether nothing is written here any more.
func (h *Handle) IsRetired() bool {
	select {
	case <-h.retired:
		return true
	default:
		return false
	}
}

// Replaced is closed when another handle serves.
func (h *Handle) Replaced() <-chan struct{} { return h.replaced }

// Errors translates errors of reads for clients.
type Errors interface{ Translate(error) error }

// Current is the handle that serves now. Its methods may be called concurrently, except for
// Replace.
type Current struct {
	p        atomic.Pointer[Handle]
	errs     Errors
	stopping <-chan struct{}
}

// NewCurrent returns the Current that begins with h. stopping is closed when the member stops.
func NewCurrent(h *Handle, errs Errors, stopping <-chan struct{}) *Current {
	c := &Current{errs: errs, stopping: stopping}
	c.p.Store(h)
	return c
}

// Load returns the handle that serves now.
func (c *Current) Load() *Handle { return c.p.Load() }

// Replace lets h serve instead of a handle that is retired.
func (c *Current) Replace(h *Handle) {
	old := c.p.Swap(h)
	close(old.replaced)
}

// Read reads from the store that serves now, and again if another one replaces it and the old one
// cannot finish the read. Every read for a client goes through here. Errors: kv.ErrStopped, from
// ctx, and the errors of read, translated by Errors.
func Read[T any](ctx context.Context, c *Current, read func(*Handle) (T, error)) (T, error) {
	for {
		h := c.Load()
		res, err := read(h)
		if err == nil || !errors.Is(err, history.ErrClosed) || !h.IsRetired() {
			return res, c.errs.Translate(err)
		}
		select {
		case <-h.replaced:
		case <-ctx.Done():
			return res, ctx.Err()
		case <-c.stopping:
			return res, kv.ErrStopped
		}
	}
}

// Revision returns the newest revision that can be read.
func (c *Current) Revision() int64 { return c.Load().Store.Revision() }

// CompactRevision returns the revision below which the history may be incomplete.
func (c *Current) CompactRevision() int64 { return c.Load().Store.CompactRevision() }

// EventsIn returns events of revisions from from on and before to, at about maxBytes, and the
// revision to go on with.
func (c *Current) EventsIn(buf *kv.EventBuffer, from, to int64, maxBytes int) (events []kv.Event,
	next int64, err error) {
	events, err = Read(context.Background(), c, func(h *Handle) (ev []kv.Event, err error) {
		ev, next, err = h.Store.EventsIn(buf, from, to, maxBytes)
		return ev, err
	})
	return events, next, err
}

// Get returns the value of a key as of a revision, encoded as the store has it.
func (c *Current) Get(key []byte, rev int64) ([]byte, error) {
	return Read(context.Background(), c,
		func(h *Handle) ([]byte, error) { return h.Store.Get(key, rev) })
}
