package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"vigil/internal/member/replica/transfer"
	"vigil/internal/store/history"
)

// truncate is the truncator goroutine.
func (r *Replica) truncate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.trail.Due():
			if err := r.shorten(false); err != nil {
				r.fail(err)
				return
			}
		}
	}
}

// shorten makes the store durable and truncates the part of the log that it covers, less what an archive lacks: all of it if the
// disk is full, and no other member may need it or there is no room for requests that free space.
func (r *Replica) shorten(full bool) error {
	h := r.handle()
	synced, err := h.log.Sync()
	if err != nil {
		if h.isRetired() {
			return nil // the log begins after the snapshot that replaces it
		}
		if h.log.Err() == nil && !errors.Is(err, history.ErrClosed) {
			r.cfg.Logger.Warn("the raft log cannot be shortened yet: the store cannot be synced", slog.Any("error", err))
			return nil
		}
		return fmt.Errorf("replica: syncing the store: %w", err)
	}
	entries, bytes := r.cfg.CatchUpEntries, r.cfg.CatchUpBytes
	if full && (r.Members.Alone() || r.raftLog.RoomToFree() != nil) {
		entries, bytes = 0, 0
	}
	// Raft learns later than the store that entries are applied, and reads them until then.
	cut := min(r.node.Acknowledged(), r.trail.Keep(synced.Index, entries, bytes))
	if bytes > 0 {
		if cut, err = r.keepForOthers(cut); err != nil {
			return err
		}
	}
	if r.cfg.Hold != nil && !full {
		cut = r.cfg.Hold.LimitTruncation(r.Source.FirstIndex(), cut, r.raftLog.Bytes()-r.cfg.CatchUpBytes-r.cfg.SnapshotBytes)
	}
	if cut == 0 {
		return nil
	}
	if err := r.raftLog.TruncateBefore(cut + 1); err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	r.cfg.Logger.Debug("raft log shortened", slog.Uint64("synced", synced.Index), slog.Uint64("first", cut+1))
	return nil
}

const (
	// catchUpShare is the part of the room on the disk of the raft log that it may take for members that lag, and mostCatchUp the most
	// that it takes by itself.
	catchUpShare = 4
	mostCatchUp  = 16 << 30
	// unmeasuredCatchUp is the bound while it is not known what is free.
	unmeasuredCatchUp = 512 << 20
)

// keepForOthers returns the index up to which the raft log may be truncated, at most cut, so that members that lag get what they lack
// from it.
func (r *Replica) keepForOthers(cut uint64) (uint64, error) {
	if r.network == nil {
		return cut, nil
	}
	progress, err := r.node.Progress()
	if err != nil {
		return 0, nil // the member stops
	}
	delete(progress, r.memberID)
	first, err := r.raftLog.FirstIndex()
	if err != nil {
		return 0, fmt.Errorf("replica: %w", err)
	}
	size := r.raftLog.Bytes()
	return r.sender.LimitTruncation(cut, transfer.Log{First: first, Bytes: size, Most: r.maxCatchUp(size), Progress: progress}), nil
}

// maxCatchUp returns how large a raft log of a size may be for members that lag.
func (r *Replica) maxCatchUp(size int64) int64 {
	if most := r.cfg.MaxCatchUpBytes; most > 0 {
		return most
	}
	// The next measurement is for the next time.
	r.space.gauge.Start()
	free := r.space.gauge.Last()
	if len(free) < 2 || free[1] == math.MaxInt64 {
		return unmeasuredCatchUp
	}
	return min((free[1]+size)/catchUpShare, mostCatchUp)
}
