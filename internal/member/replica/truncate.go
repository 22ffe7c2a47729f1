package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

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
	cut := min(r.node.Acknowledged(), r.sender.LimitTruncation(r.trail.Keep(synced.Index, entries, bytes), r.raftLog.Bytes()))
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
