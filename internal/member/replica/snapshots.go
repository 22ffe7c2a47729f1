package replica

import (
	"context"
	"errors"
	"io"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/wal"
)

// transferOptions returns the options of both ends of snapshots.
func (r *Replica) transferOptions() transfer.Options {
	c := &r.cfg
	return transfer.Options{
		ClusterID:  r.clusterID,
		MemberID:   r.memberID,
		Member:     r,
		Network:    r.network,
		NoteDamage: r.damage.Note,
		Place:      c.place(),
		History: c.historyOptions(wal.Identity{ClusterID: r.clusterID,
			MemberID: r.memberID}),
		Stopping:       r.stopping,
		MaxSending:     c.MaxSnapshots,
		BytesPerSecond: c.SnapshotBytesPerSecond,
		OfferTimeout:   c.SnapshotOfferTimeout,
		Logger:         c.Logger,
	}
}

// snapshots returns the sender for raft, nil if there are no other members.
func (r *Replica) snapshots() raftnode.Snapshots {
	if r.network == nil {
		return nil
	}
	return r.sender
}

// senderOrNil returns the sender, nil if there are no other members.
func (r *Replica) senderOrNil() *transfer.Sender {
	if r.network == nil {
		return nil
	}
	return r.sender
}

// Present returns the store's history and index. A snapshot that is installed replaces both.
func (r *Replica) Present() (*history.Log, *mvcc.Store) {
	h := r.current.Load()
	return h.Log, h.Store
}

// OfferSnapshot answers a leader that is about to send a snapshot (calls.SnapshotOffer). Errors:
// kv.ErrStopped, and from transfer.Receiver.ServeOffer.
func (r *Replica) OfferSnapshot(ctx context.Context, from uint64, payload []byte) ([]byte, error) {
	ctx, done, err := r.beginErrand(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return r.receiver.ServeOffer(ctx, from, payload)
}

// ReceiveBulk receives a snapshot from a leader; see transfer.Receiver.
func (r *Replica) ReceiveBulk(ctx context.Context, from uint64, meta []byte,
	stream io.ReadCloser) error {
	if h := r.current.Load(); r.custody.Err() != nil || errors.Is(h.Log.CheckDir(), kv.ErrAway) &&
		!h.IsRetired() {
		// The snapshot would be received into a directory that nobody finds, and take the name of
		// one that may come back.
		return kv.ErrAway
	}
	return r.receiver.ReceiveBulk(ctx, from, meta, stream)
}
