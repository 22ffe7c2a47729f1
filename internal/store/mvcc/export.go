package mvcc

import (
	"context"
	"fmt"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/record"
)

// Export is a Cut of which only those records count that etcd would still have: those at and above the
// compact revision, and below it the state that each key then had. What else is still on disk is left
// out. It is walked twice, so that its copier knows the contents beforehand, and it
// holds the files that it reads: Close gives them back.
type Export struct {
	// Applied, Revision, Compact and Meta are those of the Cut.
	Applied history.Applied
	// RevisionTime is the time of Revision, 0 if it is not known.
	RevisionTime      int64
	Revision, Compact int64
	Meta              []history.Meta

	sc *history.Scanner
	// kept has a bit for each record below the compact revision that is on disk: whether it counts. at is
	// how many of them the second walk has passed.
	kept []uint64
	at   int
}

// Export cuts the state and calls visit with the records that count, in order; data are valid during the
// call. An error of visit ends it. Afterwards the Export itself yields the same records again, at the pace
// of their receiver. The first walk is as fast as disk and memory are; while it lasts, what
// compactions have to do in the background waits, and so does HashKV. Memory is one bit for each record
// below the compact revision, and up to 16 MiB during the first walk.
//
// Errors: visit's, ctx's, history.ErrClosed after Close, or one of the log.
func (s *Store) Export(ctx context.Context, visit func(rev kv.Rev, tombstone bool, data []byte) error) (*Export, error) {
	select {
	case s.hashes.slot <- struct{}{}:
		defer func() { <-s.hashes.slot }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.trim.quit:
		return nil, history.ErrClosed
	}
	// Held before the cut is made: the cut's compact revision may be above the one that is held, and
	// nothing that counts at it goes away meanwhile.
	s.hashes.hold(s)
	defer s.hashes.release()
	cut, snap, err := s.cut(ctx)
	if err != nil {
		return nil, err
	}
	first, err := cut.view.Hold(kv.Rev{})
	if err != nil {
		return nil, fmt.Errorf("mvcc: export: %w", err)
	}
	defer first.Close()
	// The cut itself is not kept: the index of its time would be with it.
	e := &Export{Applied: cut.Applied, RevisionTime: snap.times.newest, Revision: cut.Revision, Compact: cut.Compact, Meta: cut.Meta, sc: first.Twin()}
	states := hashing{Rests: s.newRests(), snap: snap, lower: cut.Compact, limit: s.hashes.states}
	if err := e.choose(ctx, first, &states, visit); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// choose walks over the records for the first time.
func (e *Export) choose(ctx context.Context, sc *history.Scanner, states *hashing, visit func(rev kv.Rev, tombstone bool, data []byte) error) error {
	if e.Compact > 0 {
		if err := states.gather(ctx, e.Compact); err != nil {
			return err
		}
	}
	n := 0
	for left := 0; sc.Next(); {
		rev, tombstone, data := sc.Rev(), sc.Tombstone(), sc.Data()
		if left -= len(data) + 64; left < 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			left = hashPause
		}
		if rev.Main < e.Compact {
			key, _, err := record.LeadingKey(data)
			if err != nil {
				return fmt.Errorf("mvcc: export: %w at revision %d.%d: %w", err, rev.Main, rev.Sub, kv.ErrCorrupt)
			}
			if n%64 == 0 {
				e.kept = append(e.kept, 0)
			}
			keep := !tombstone && states.isState(key, rev, e.Compact)
			if keep {
				e.kept[n/64] |= 1 << (n % 64)
			}
			n++
			if !keep {
				continue
			}
		}
		if err := visit(rev, tombstone, data); err != nil {
			return err
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("mvcc: export: %w", err)
	}
	return nil
}

// Next goes to the next record of the second walk. It returns false at the end or on an error.
func (e *Export) Next() bool {
	for e.sc.Next() {
		if e.sc.Rev().Main >= e.Compact {
			return true
		}
		e.at++
		if n := e.at - 1; e.kept[n/64]&(1<<(n%64)) != 0 {
			return true
		}
	}
	return false
}

// Rev returns the revision of the current record.
func (e *Export) Rev() kv.Rev { return e.sc.Rev() }

// Stamp returns the revision of the current record and its time.
func (e *Export) Stamp() history.Stamp { return e.sc.Stamp() }

// Tombstone says whether the current record is a deletion.
func (e *Export) Tombstone() bool { return e.sc.Tombstone() }

// Data returns the encoded record, which is valid until the next Next.
func (e *Export) Data() []byte { return e.sc.Data() }

// Err returns what ended the walk early, nil at its proper end.
func (e *Export) Err() error { return e.sc.Err() }

// ReleaseMemory releases the memory of segments that became files meanwhile; see history.Scanner.ReleaseMemory. It is for any
// goroutine.
func (e *Export) ReleaseMemory() (left bool) { return e.sc.ReleaseMemory() }

// Close releases the files.
func (e *Export) Close() { e.sc.Close() }
