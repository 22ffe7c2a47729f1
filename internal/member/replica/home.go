package replica

import (
	"context"
	"errors"

	"vigil/internal/kv"
	"vigil/internal/state/lease"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// home is where the state machine lives: the store on disk and its index. A snapshot that is
// installed brings another one.
type home struct {
	log   *history.Log
	store *mvcc.Store
	// leases are those of the state machine, to be read.
	leases *lease.State
	// retired is closed when nothing is written here any more, replaced when another home serves.
	// Readers go on in between, and behind it until the log is closed.
	retired, replaced chan struct{}
}

func newHome(log *history.Log, store *mvcc.Store, leases *lease.State) *home {
	return &home{log: log, store: store, leases: leases, retired: make(chan struct{}), replaced: make(chan struct{})}
}

func (h *home) isRetired() bool {
	select {
	case <-h.retired:
		return true
	default:
		return false
	}
}

// LeaseState returns the leases as of the applied position.
func (r *Replica) LeaseState() *lease.State { return r.now().leases }

// Store returns the present store. A snapshot may replace it.
func (r *Replica) Store() *mvcc.Store { return r.now().store }

// ReadStore calls read with the present store, and again if a snapshot replaces the store meanwhile.
func (r *Replica) ReadStore(ctx context.Context, read func(*mvcc.Store) error) error {
	_, err := onHome(ctx, r, func(h *home) (struct{}, error) { return struct{}{}, read(h.store) })
	return err
}

// now returns the present home, nil before there is one.
func (r *Replica) now() *home { return r.home.Load() }

// onHome reads from the present home. A read that is under way when the store is replaced and cannot
// be finished on the old one begins again on the new one. Every read for somebody outside goes through here: its
// errors are those of unreadable.
func onHome[T any](ctx context.Context, r *Replica, read func(*home) (T, error)) (T, error) {
	for {
		h := r.now()
		res, err := read(h)
		if err == nil || !errors.Is(err, history.ErrClosed) || !h.isRetired() {
			return res, r.unreadable(err)
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
