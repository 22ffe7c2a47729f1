package replica

import (
	"context"
	"errors"

	"vigil/internal/kv"
	"vigil/internal/state/lease"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// handle is the store that the state machine works on: its history on disk and its index. A snapshot that is installed
// brings another one.
type handle struct {
	log   *history.Log
	store *mvcc.Store
	// leases are those of the state machine, to be read.
	leases *lease.State
	// retired is closed when nothing is written here any more, replaced when another handle serves. Readers continue in
	// between, and after that until the log is closed.
	retired, replaced chan struct{}
}

func newHandle(log *history.Log, store *mvcc.Store, leases *lease.State) *handle {
	return &handle{log: log, store: store, leases: leases, retired: make(chan struct{}), replaced: make(chan struct{})}
}

func (h *handle) isRetired() bool {
	select {
	case <-h.retired:
		return true
	default:
		return false
	}
}

// LeaseState returns the leases as of the applied position.
func (r *Replica) LeaseState() *lease.State { return r.handle().leases }

// Store returns the present store. A snapshot may replace it.
func (r *Replica) Store() *mvcc.Store { return r.handle().store }

// ReadStore calls read with the present store, and again if a snapshot replaces the store meanwhile.
func (r *Replica) ReadStore(ctx context.Context, read func(*mvcc.Store) error) error {
	_, err := onStore(ctx, r, func(h *handle) (struct{}, error) { return struct{}{}, read(h.store) })
	return err
}

// handle returns the present store handle, nil before there is one.
func (r *Replica) handle() *handle { return r.current.Load() }

// onStore reads from the present store. A read that is under way when the store is replaced, and cannot be finished on the
// old one, is repeated on the new one. Every read for a client goes through here: its errors are those of unreadable.
func onStore[T any](ctx context.Context, r *Replica, read func(*handle) (T, error)) (T, error) {
	for {
		h := r.handle()
		res, err := read(h)
		if err == nil || !errors.Is(err, history.ErrClosed) || !h.isRetired() {
			return res, r.space.unreadable(err)
		}
		select {
		case <-h.replaced:
		case <-ctx.Done():
			return res, ctx.Err()
		case <-r.stopping:
			return res, kv.ErrStopped
		}
	}
}
