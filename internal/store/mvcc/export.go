package mvcc

import (
	"context"
	"fmt"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/record"
)

// Export is a Cut without the records that etcd would no longer have: it yields the records at and
// above the compact revision, and below it only the state that each key had then. It omits all
// other records that are still on disk. The caller walks it twice, so that it knows the contents
// before it copies them. An Export holds the files that it reads: Close releases them.
type Export struct {
	// Applied, Revision, Compact and Meta have the values of the Cut.
	Applied history.Applied
	// RevisionTime is the time of Revision, 0 if it is not known.
	RevisionTime      int64
	Revision, Compact int64
	Meta              []history.Meta

	sc *history.Scanner
	// kept has a bit for each record below the compact revision that is on disk: whether it counts.
	// at is the number of these records that the second walk has passed.
	kept []uint64
	at   int
}

// Export cuts the state and calls visit with each record that counts, in order; data is valid
// during the call. An error of visit ends the walk. Afterwards the Export itself yields the same
// records again, at the pace of their receiver. The first walk runs at the speed of disk and
// memory; while it lasts, the background work of compactions and HashKV wait. An Export uses one
// bit of memory for each record below the compact revision, and up to 16 MiB during the first walk.
//
// Errors: visit's, ctx's, history.ErrClosed after Close, or one of the log.
func (s *Store) Export(ctx context.Context,
	visit func(rev kv.Rev, tombstone bool, data []byte) error) (*Export, error) {
	select {
	case s.hashes.slot <- struct{}{}:
		defer func() { <-s.hashes.slot }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.trim.quit:
		return nil, history.ErrClosed
	}
	// Hold before the cut: the compact revision of the cut may then be above the held one, and no
	// record that counts at it goes away until the release.
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
	// Keep the fields and not the cut, which would keep the index of its time.
	e := &Export{Applied: cut.Applied, RevisionTime: snap.times.newest, Revision: cut.Revision,
		Compact: cut.Compact, Meta: cut.Meta, sc: first.Twin()}
	states := hashing{Rests: s.newRests(), snap: snap, lower: cut.Compact, limit: s.hashes.states}
	if err := e.choose(ctx, first, &states, visit); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// choose walks over the records for the first time.
func (e *Export) choose(ctx context.Context, sc *history.Scanner, states *hashing,
	visit func(rev kv.Rev, tombstone bool, data []byte) error) error {
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
				return fmt.Errorf("mvcc: export: %w at revision %d.%d: %w", err, rev.Main,
					rev.Sub, kv.ErrCorrupt)
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

// Tombstone reports whether the current record is a deletion.
func (e *Export) Tombstone() bool { return e.sc.Tombstone() }

// Data returns the encoded record, which is valid until the next Next.
func (e *Export) Data() []byte { return e.sc.Data() }

// Err returns the error that ended the walk early, nil at its regular end.
func (e *Export) Err() error { return e.sc.Err() }

// ReleaseMemory releases the memory of segments that have become files since; see
// history.Scanner.ReleaseMemory. Any goroutine may call it.
func (e *Export) ReleaseMemory() (left bool) { return e.sc.ReleaseMemory() }

// Close releases the files.
func (e *Export) Close() { e.sc.Close() }
