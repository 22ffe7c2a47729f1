package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"vigil/internal/store/history"
)

// trail remembers how many bytes of entries were applied up to which position, coarsely, and how
// much was applied since the raft log was last shortened.
type trail struct {
	mu struct {
		sync.Mutex
		marks    []mark
		requests uint64
		bytes    int64 // applied since the start
		cut      int64 // bytes at the last shortening
	}
	step int64
	// The bounds at which the log is to be shortened, and the word to the truncator.
	dueRequests uint64
	dueBytes    int64
	wake        chan struct{}
}

// mark says that the entries up to index have bytes.
type mark struct {
	index uint64
	bytes int64
}

func (t *trail) init(index uint64, c *Config) {
	t.step = max(c.CatchUpBytes/16, 1)
	t.dueRequests, t.dueBytes = c.SnapshotCount, c.SnapshotBytes
	t.wake = make(chan struct{}, 1)
	t.mu.marks = []mark{{index: index}}
}

func (t *trail) add(index, requests uint64, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.requests += requests
	t.mu.bytes += bytes
	if last := t.mu.marks[len(t.mu.marks)-1]; t.mu.bytes-last.bytes >= t.step {
		t.mu.marks = append(t.mu.marks, mark{index, t.mu.bytes})
	}
	if t.mu.requests >= t.dueRequests || t.mu.bytes-t.mu.cut >= t.dueBytes {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// keep returns the index up to which entries are given up if those up to synced are not needed for
// recovery: what remains is at most entries and about bytes.
func (t *trail) keep(synced, entries uint64, bytes int64) (cut uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.requests, t.mu.cut = 0, t.mu.bytes
	if synced > entries {
		cut = synced - entries
	}
	n := 0
	for i, m := range t.mu.marks {
		if m.index > synced || t.mu.bytes-m.bytes < bytes {
			break
		}
		cut, n = max(cut, m.index), i
	}
	t.mu.marks = append(t.mu.marks[:0], t.mu.marks[n:]...)
	return cut
}

// truncate is the truncator goroutine.
func (r *Replica) truncate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.trail.wake:
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
	cut := min(r.node.Acknowledged(), r.sender.LimitTruncation(r.trail.keep(synced.Index, entries, bytes), r.raftLog.Bytes()))
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
