// Package truncate gives up entries of the raft log: those that the store of the member has made
// durable, less the ones that other members or an archive lack.
package truncate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/freespace"
	"vigil/internal/member/replica/handle"
	"vigil/internal/member/replica/position"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
)

// Hold keeps entries of the raft log that are needed elsewhere.
type Hold interface {
	// LimitTruncation returns the index up to which the log may be truncated, at most cut. first is
	// the first index of the log, extra how many bytes it has beyond the ones that the member keeps
	// anyway. It does not block.
	LimitTruncation(first, cut uint64, extra int64) uint64
}

// Raft is the member's raft node.
type Raft interface {
	// Acknowledged returns the newest index that raft knows to be applied. It reads entries until
	// then.
	Acknowledged() uint64
	// Progress returns the progress of all members if this one leads.
	Progress() (map[uint64]raftnode.Progress, error)
}

// Membership is the membership as of the applied position.
type Membership interface {
	// Alone reports whether the cluster has no other member.
	Alone() bool
}

// Options configure a Truncator. Sender and Hold may be nil.
type Options struct {
	MemberID   uint64
	RaftLog    *wal.WAL
	Current    *handle.Current
	Trail      *position.Trail
	Raft       Raft
	Membership Membership
	// Sender knows which entries other members lack; nil if there never are any.
	Sender *transfer.Sender
	Hold   Hold
	// Gauge measures the disks of the history and of the raft log, in this order.
	Gauge *freespace.Gauge
	// SnapshotCatchUpEntries and CatchUpBytes limit the entries that are kept anyway,
	// MaxCatchUpBytes the log for members that lag; 0 means that this depends on the room on the
	// disk.
	SnapshotCatchUpEntries        uint64
	CatchUpBytes, MaxCatchUpBytes int64
	// SnapshotBytes is the size of entries after which the log is shortened.
	SnapshotBytes int64
	Logger        *slog.Logger
}

// Truncator gives up entries of the raft log.
type Truncator struct{ o Options }

// New returns a Truncator. Run makes it work.
func New(o Options) *Truncator { return &Truncator{o} }

// Run shortens the log whenever it is due, until ctx ends. Errors: as Shorten.
func (t *Truncator) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.o.Trail.Due():
			if err := t.Shorten(false); err != nil {
				return err
			}
		}
	}
}

// Shorten makes the store durable and truncates the part of the log that it covers, less the part
// that an archive lacks: all of it if the disk is full, and no other member may need it or there is
// no room for requests that free space. Errors: from the log and the store; they end the
// member.
func (t *Truncator) Shorten(full bool) error {
	h := t.o.Current.Load()
	synced, err := h.Log.Sync()
	if err != nil {
		if h.IsRetired() {
			return nil // the log begins after the snapshot that replaces it
		}
		if h.Log.Err() == nil && !errors.Is(err, history.ErrClosed) {
			t.o.Logger.Warn("the raft log cannot be shortened yet: the store cannot be synced",
				slog.Any("error", err))
			return nil
		}
		return fmt.Errorf("replica: syncing the store: %w", err)
	}
	entries, bytes := t.o.SnapshotCatchUpEntries, t.o.CatchUpBytes
	if full && (t.o.Membership.Alone() || t.o.RaftLog.CheckRoomForRemovals() != nil) {
		entries, bytes = 0, 0
	}
	// Raft learns later than the store that entries are applied, and reads them until then.
	cut := min(t.o.Raft.Acknowledged(), t.o.Trail.Keep(synced.Index, entries, bytes))
	if bytes > 0 {
		if cut, err = t.keepForOthers(cut); err != nil {
			return err
		}
	}
	if t.o.Hold != nil && !full {
		first, _ := t.o.RaftLog.FirstIndex()
		cut = t.o.Hold.LimitTruncation(first, cut,
			t.o.RaftLog.Bytes()-t.o.CatchUpBytes-t.o.SnapshotBytes)
	}
	if cut == 0 {
		return nil
	}
	if err := t.o.RaftLog.TruncateBefore(cut + 1); err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	t.o.Logger.Debug("raft log shortened", slog.Uint64("synced", synced.Index),
		slog.Uint64("first", cut+1))
	return nil
}

const (
	// catchUpShare is the part of the room on the disk of the raft log that it may take for members
	// that lag, and mostCatchUp the most that it takes by itself.
	catchUpShare = 4
	mostCatchUp  = 16 << 30
	// unmeasuredCatchUp is the bound while it is not known how much is free.
	unmeasuredCatchUp = 512 << 20
)

// keepForOthers returns the index up to which the raft log may be truncated, at most cut, so that
// members that lag get the entries that they lack from it.
func (t *Truncator) keepForOthers(cut uint64) (uint64, error) {
	if t.o.Sender == nil {
		return cut, nil
	}
	progress, err := t.o.Raft.Progress()
	if err != nil {
		return 0, nil // the member stops
	}
	delete(progress, t.o.MemberID)
	first, err := t.o.RaftLog.FirstIndex()
	if err != nil {
		return 0, fmt.Errorf("replica: %w", err)
	}
	size := t.o.RaftLog.Bytes()
	return t.o.Sender.LimitTruncation(cut,
		transfer.Log{First: first, Bytes: size, Most: t.maxCatchUp(size), Progress: progress}), nil
}

// maxCatchUp returns how large a raft log of a size may be for members that lag.
func (t *Truncator) maxCatchUp(size int64) int64 {
	if most := t.o.MaxCatchUpBytes; most > 0 {
		return most
	}
	// The next measurement is for the next time.
	t.o.Gauge.Start()
	free := t.o.Gauge.Last()
	if len(free) < 2 || free[1] == math.MaxInt64 {
		return unmeasuredCatchUp
	}
	return min((free[1]+size)/catchUpShare, mostCatchUp)
}
