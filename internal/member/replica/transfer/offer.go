package transfer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// base is a copy of the store that was put aside when a leader asked which data this member lacks.
type base struct {
	from       uint64 // the leader
	checkpoint history.Checkpoint
	hash       uint32
}

// ServeOffer answers a leader that is about to send a snapshot (calls.SnapshotOffer) with the state
// of this member: its history up to a revision, which it copies aside, and the hash of that
// history. The copy takes links and the time to read all records, and delays nothing else. After
// any failure the answer is that there is no such copy, so the leader sends everything: this heals
// a member whose data are damaged. Errors: from ctx, and ErrReceiving.
func (r *Receiver) ServeOffer(ctx context.Context, from uint64, payload []byte) ([]byte, error) {
	o, err := decodeOffer(payload)
	if err != nil {
		return nil, err
	}
	if err := r.takeSlot(ctx, from); err != nil {
		return nil, err
	}
	defer r.freeSlot()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h := &holder{from: from, offering: true, end: func() { cancel(ErrReceiving) }}
	if st := r.raft.Status(); st.Lead == from {
		h.term = st.Term
	}
	r.setHolder(h)
	defer r.setHolder(nil)
	a, err := r.offerBase(ctx, from, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.o.Logger.Warn("cannot offer this member's history to add a snapshot to; everything is "+
			"sent", memberAttr(from), slog.Any("error", err))
		return Answer{}.Encode(), nil
	}
	return a.Encode(), nil
}

// offerBase puts a copy of the store aside if the sender can use it.
func (r *Receiver) offerBase(ctx context.Context, from uint64, o Offer) (a Answer, err error) {
	if err := r.dropBase(); err != nil {
		return a, err
	}
	log, store := r.o.Member.Present()
	if log.Applied().Index >= o.Index {
		return Answer{Ahead: true}, nil
	}
	if store.Revision() < max(o.Compact, 2) {
		return a, nil
	}
	dir := r.o.Place.incomingDir()
	cp, err := log.Checkpoint(ctx, dir, "")
	if err != nil {
		return a, r.o.NoteDamage(err)
	}
	hash, err := store.HashAt(ctx, cp.Revision, o.Compact)
	if errors.Is(err, kv.ErrCompacted) || errors.Is(err, kv.ErrFutureRev) {
		// This member has compacted the revision of the comparison.
		return a, r.o.Place.RemoveDir(dir)
	}
	if err != nil {
		return a, errors.Join(r.o.NoteDamage(err), r.o.Place.RemoveDir(dir))
	}
	b := &base{from: from, checkpoint: cp, hash: hash}
	r.base = b
	r.mu.Lock()
	r.mu.expiry = time.AfterFunc(r.o.OfferTimeout, func() { r.expireBase(b) })
	r.mu.Unlock()
	return Answer{Have: true, Revision: cp.Revision, Hash: hash}, nil
}

// dropBase removes the copy that an offer has put aside. The caller holds the slot.
func (r *Receiver) dropBase() error {
	r.takeBase()
	return r.o.Place.RemoveDir(r.o.Place.incomingDir())
}

// takeBase returns the copy that an offer has put aside, nil for none. The caller holds the slot,
// and then owns the directory.
func (r *Receiver) takeBase() *base {
	b := r.base
	r.base = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.expiry != nil {
		r.mu.expiry.Stop()
		r.mu.expiry = nil
	}
	return b
}

// expireBase removes the copy that an offer has put aside if no transfer has used it.
func (r *Receiver) expireBase(b *base) {
	r.mu.Lock()
	if r.mu.closed {
		r.mu.Unlock()
		return
	}
	r.expiring.Add(1)
	r.mu.Unlock()
	defer r.expiring.Done()
	if !r.tryTakeSlot() {
		return // the holder of the slot removes the base, or uses it
	}
	defer r.freeSlot()
	if r.base != b {
		return
	}
	if err := r.dropBase(); err != nil {
		r.o.Logger.Warn("a copy of the store that no snapshot was added to could not be removed; "+
			"the next offer or start does", slog.Any("error", err))
	}
}
