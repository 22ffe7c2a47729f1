package mvcc

import (
	"context"
	"fmt"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// Cut is the whole state as one commit left it, for making a copy: all its parts are from one
// position in the raft log. It is immutable, but a later compaction removes the records that it
// makes needless; see Records.
type Cut struct {
	// Applied is the position in the raft log that produced the state.
	Applied history.Applied
	// Revision and Compact are the newest and the compact revision, as of the Store.
	Revision, Compact int64
	// Meta holds the meta records, in no order.
	Meta []history.Meta

	s    *Store
	view *history.View
}

// Cut returns the state of the newest commit. The writer waits as long as it takes to copy a slice
// header for each meta record. Errors: ctx's, and history.ErrClosed after Close.
func (s *Store) Cut(ctx context.Context) (*Cut, error) {
	c, _, err := s.cut(ctx)
	return c, err
}

// cut is Cut with the index of that time. A Cut must not keep the index, because it would keep the
// memory of everything that compactions drop from it.
func (s *Store) cut(ctx context.Context) (*Cut, *snapshot, error) {
	select {
	case s.lock <- struct{}{}:
		defer func() { <-s.lock }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-s.trim.quit:
		return nil, nil, history.ErrClosed
	}
	s.cuts.RLock()
	defer s.cuts.RUnlock()
	select {
	case <-s.trim.quit:
		return nil, nil, history.ErrClosed // the log may be closed at any time
	default:
	}
	// Whoever holds the lock acts as the writer. A batch may be open that waits for room: the cut
	// does not include it.
	snap, view := s.snap.Load(), s.log.View()
	c := &Cut{Applied: view.Applied(), Revision: snap.rev, Compact: snap.compact,
		Meta: s.log.CommittedMeta(), s: s, view: view}
	return c, snap, nil
}

// Records returns a scanner over the records at and above a revision, which holds the files that it
// reads and must be closed. It fails with a *kv.CompactedError if a compaction came after the cut:
// records of the cut may be gone then, and the caller needs another Cut.
func (c *Cut) Records(from int64) (*history.Scanner, error) {
	sc, err := c.view.Hold(kv.Rev{Main: from})
	if err != nil {
		return nil, fmt.Errorf("mvcc: %w", err)
	}
	if now := c.s.CompactRevision(); now != c.Compact {
		sc.Close()
		return nil, &kv.CompactedError{CompactRevision: now}
	}
	return sc, nil
}
