package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/stream"
)

// ErrReceiving reports that a member receives another snapshot.
var ErrReceiving = errors.New("transfer: another snapshot is being received")

// Receiver receives snapshots.
type Receiver struct {
	o    Options
	raft Raft
	// slot holds a token from an offer, or the start of a transfer, until the copy or the state is
	// removed or installed. It guards base, and the directories next to the store.
	slot chan struct{}
	// base is the copy that the last offer has put aside. A timer removes it when no transfer
	// follows in time: its files take space.
	base *base

	mu struct {
		sync.Mutex
		closed bool
		// in is the state that is being received.
		in *incoming
		// holder is the offer or transfer that uses the slot, nil while none does that the member
		// could end.
		holder *holder
		// expiry removes the base.
		expiry *time.Timer
		// waiting is the position that raft has accepted; installed is closed when it is installed.
		waiting   history.Applied
		installed chan struct{}
	}
	// expiring is the removal of a base by its timer.
	expiring sync.WaitGroup

	received, installed, failed, bytes atomic.Uint64
	installing                         atomic.Bool
}

// holder is an offer or a transfer under way.
type holder struct {
	// from is the leader that asked, in term; term is 0 if this member did not know it as the
	// leader.
	from, term uint64
	// offering: it is an offer. A leader that has started something else does not wait for its
	// answer.
	offering bool
	end      func()
}

// NewReceiver returns a Receiver.
func NewReceiver(o Options, raft Raft) *Receiver {
	return &Receiver{o: o, raft: raft, slot: make(chan struct{}, 1)}
}

func (r *Receiver) tryTakeSlot() bool {
	select {
	case r.slot <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r *Receiver) freeSlot() { <-r.slot }

// setHolder notes the holder of the slot, nil for none.
func (r *Receiver) setHolder(h *holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.holder = h
}

// Close closes the state that is being received, so that it writes nothing more.
func (r *Receiver) Close() {
	r.mu.Lock()
	in := r.mu.in
	r.mu.closed, r.mu.in = true, nil
	if r.mu.expiry != nil {
		r.mu.expiry.Stop()
	}
	r.mu.Unlock()
	if in != nil {
		in.abandon()
	}
	r.expiring.Wait()
}

// setIncoming records in as the state that is being received. After Close it closes in and returns
// false.
func (r *Receiver) setIncoming(in *incoming) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		in.abandon()
		return false
	}
	r.mu.in = in
	return true
}

// takeSlot takes the slot for a leader. It ends an offer or a transfer of a former leader: that
// leader may have disappeared, and its connection counts as dead only some seconds later. In that
// time, the quorum may lack just this member. It also ends an offer of the same leader, which no
// longer waits for the answer.
func (r *Receiver) takeSlot(ctx context.Context, from uint64) error {
	if r.tryTakeSlot() {
		return nil
	}
	st := r.raft.Status()
	r.mu.Lock()
	h := r.mu.holder
	r.mu.Unlock()
	if h == nil || !(h.offering && h.from == from) && !(st.Lead == from && h.term < st.Term) {
		return ErrReceiving
	}
	h.end()
	select {
	case r.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.o.Stopping:
		return kv.ErrStopped
	}
}

// ReceiveBulk receives a snapshot from a leader: it builds the state in a directory next to the
// store, checks it, makes it durable, and returns nil when the state serves, or raft does not need
// it. In both cases no further attempt is needed. After an error it removes the state, unless the
// member is stopping: then the next start does. It receives one snapshot at a time.
//
// Close the connection of body before Close, which does not interrupt reading from it. The Receiver
// closes body itself when another leader starts to send a snapshot.
func (r *Receiver) ReceiveBulk(ctx context.Context, from uint64, meta []byte,
	body io.ReadCloser) error {
	h, err := DecodeHeader(meta)
	if err == nil && h.Cluster != r.o.ClusterID {
		err = fmt.Errorf("transfer: a snapshot of cluster %x for a member of %x",
			h.Cluster, r.o.ClusterID)
	}
	if err != nil {
		r.failed.Add(1)
		return err
	}
	if err := r.takeSlot(ctx, from); err != nil {
		return err
	}
	defer r.freeSlot()
	log := r.o.Logger.With(memberAttr(from), slog.Uint64("index", h.At.Index),
		slog.Int64("revision", h.Revision))
	began := time.Now()
	log.Info("receiving a snapshot", slog.Bool("incremental", h.Incremental),
		slog.Int64("from-revision", h.Base))
	r.setHolder(&holder{from: from, term: h.Term, end: func() { _ = body.Close() }})
	in, err := r.receiveState(from, &h, body, log)
	r.setHolder(nil)
	if err != nil {
		r.failed.Add(1)
		log.Warn("receiving a snapshot failed", slog.Any("error", err))
		return err
	}
	r.received.Add(1)
	log.Info("received a snapshot", slog.Int64("bytes", in.bytes),
		slog.Uint64("records", in.records), slog.Duration("took", time.Since(began)))
	return r.awaitInstalled(ctx, from, &h, in, log)
}

// receiveState builds the state aside, whole and durable, under a name that contains its position.
func (r *Receiver) receiveState(from uint64, h *Header, body io.Reader,
	log *slog.Logger) (in *incoming, err error) {
	in, err = r.openIncoming(from, h)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.discardIncoming(in)
		}
	}()
	d := stream.NewDecoder(body)
	logged, counted := time.Now(), int64(0)
	for {
		it, err := d.Next()
		records, _, size := d.Read()
		r.bytes.Add(uint64(size - counted))
		counted = size
		if err == io.EOF {
			break
		}
		if err == nil {
			err = in.addItem(&it)
		}
		if err != nil {
			return in, err
		}
		if now := time.Now(); records%1024 == 0 && now.Sub(logged) >= progressInterval {
			logged = now
			log.Info("receiving a snapshot: progress", slog.Int64("bytes", size),
				slog.Uint64("records", records))
		}
	}
	in.records, _, in.bytes = d.Read()
	return in, in.finishState(r.o.MemberID)
}

// openIncoming opens the store that the records are added to.
func (r *Receiver) openIncoming(from uint64, h *Header) (*incoming, error) {
	o := r.o.History
	o.Dir = r.o.Place.incomingDir()
	b := r.takeBase()
	in := &incoming{place: &r.o.Place, dir: o.Dir, h: h}
	var err error
	if h.Incremental {
		if b == nil || b.from != from || b.checkpoint.Revision != h.Base || b.hash != h.Hash ||
			b.checkpoint.Applied.Index >= h.At.Index {
			return nil, errors.Join(errors.New("transfer: a snapshot from a revision that was "+
				"not offered"), in.place.RemoveDir(o.Dir))
		}
		in.log, err = history.Open(o)
	} else {
		if err = in.place.RemoveDir(o.Dir); err == nil {
			in.log, err = history.Create(o, history.Applied{}, nil)
		}
	}
	if err != nil {
		return nil, errors.Join(err, in.place.RemoveDir(o.Dir))
	}
	in.at = in.log.Applied()
	if !r.setIncoming(in) {
		return nil, kv.ErrStopped
	}
	return in, nil
}

// discardIncoming removes a state that was received.
func (r *Receiver) discardIncoming(in *incoming) {
	r.mu.Lock()
	closed := r.mu.closed
	r.mu.in = nil
	r.mu.Unlock()
	if closed {
		return // the next start removes it
	}
	in.abandon()
	if err := in.place.DropIncoming(in.dir); err != nil {
		r.o.Logger.Warn("a snapshot that is not needed could not be removed; the next start does",
			slog.String("dir", in.dir), slog.Any("error", err))
	}
}

// awaitInstalled gives the state to raft and waits until it serves, or raft does not need it. If
// ctx ends first, the member still installs a state that raft has accepted, in its turn: that may
// take as long as the disk is full, and the transport must be able to close.
func (r *Receiver) awaitInstalled(ctx context.Context, from uint64, h *Header, in *incoming,
	log *slog.Logger) error {
	installed := make(chan struct{})
	r.mu.Lock()
	r.mu.in = nil
	r.mu.waiting, r.mu.installed = h.At, installed
	r.mu.Unlock()
	accepted, err := r.raft.InstallSnapshot(&raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: &from, To: &r.o.MemberID, Term: &h.Term,
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &h.At.Index,
			Term: &h.At.Term, ConfState: in.conf}},
	})
	switch {
	case err != nil:
		return kv.ErrStopped
	case !accepted:
		log.Info("the snapshot is not needed")
		r.discardIncoming(in)
		return nil
	}
	select {
	case <-installed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.o.Stopping:
		return kv.ErrStopped
	}
}

// SetInstalling notes whether the store is being replaced.
func (r *Receiver) SetInstalling(yes bool) { r.installing.Store(yes) }

// NoteInstalled notes that the state at a position serves, and wakes the transfer that waits for
// it.
func (r *Receiver) NoteInstalled(at history.Applied) {
	r.installed.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.installed != nil && r.mu.waiting == at {
		close(r.mu.installed)
		r.mu.installed = nil
	}
}

// Stats returns the present figures.
func (r *Receiver) Stats() ReceiveStats {
	return ReceiveStats{Received: r.received.Load(), Installed: r.installed.Load(),
		Failures: r.failed.Load(), Bytes: r.bytes.Load(),
		Installing: r.installing.Load()}
}
