package mvcc

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/index"
	"vigil/internal/store/mvcc/record"
	"vigil/internal/store/pace"
)

// hashStates is the largest number of keys for which a hash collects the revisions of their states
// before it reads the records, 16 bytes each. With more keys it looks up each record in the index,
// which takes several times as long.
const hashStates = 1 << 20

// hashPause is the number of bytes of records to hash between two checks of the context and the
// time.
const hashPause = 64 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// HashKV returns the checksum over the records up to a revision, of which those at or below the
// compact revision count only if they are the state of a key at that revision. 0 is the newest
// revision. It equals the hash of etcd 3.7 for the same history: see DESIGN.md for the recipe.
//
// For the revision of a compaction, it is the hash just before that compaction, with the previous
// compact revision: each compaction computes one, so that members can be compared however far each
// has come. The store keeps the newest ten in memory; a call that comes while one is being computed
// waits for it.
//
// It reads all records once, in bounded memory (up to 17 MiB), one call at a time; writers and
// readers continue, and only the background work of compactions waits.
//
// Errors: a *kv.CompactedError, kv.ErrFutureRev, ctx's, history.ErrClosed after Close, or one of
// the log.
func (s *Store) HashKV(ctx context.Context, revision int64) (kv.HashResult, error) {
	for {
		res, due, found := s.hashes.find(revision)
		if found {
			res.Revision = s.Revision()
			return res, nil
		}
		if due == nil {
			break
		}
		select {
		case <-due:
		case <-ctx.Done():
			return kv.HashResult{}, ctx.Err()
		case <-s.trim.quit:
			return kv.HashResult{}, history.ErrClosed
		}
	}
	if _, err := s.snap.Load().hashRevision(revision); err != nil {
		return kv.HashResult{}, err
	}
	return s.hashNow(ctx, revision)
}

// Hash returns HashKV of the newest revision, never the hash of a compaction. Errors: as
// HashKV.
func (s *Store) Hash(ctx context.Context) (kv.HashResult, error) { return s.hashNow(ctx, 0) }

// HashAt returns what HashKV would return for a revision if the compact revision were compact,
// which must be at or above the store's compact revision and at most revision; -1 or 0 means none.
// So a caller can compare stores with different compactions. It costs as much as HashKV.
//
// Errors: a *kv.CompactedError if the store has been compacted above that compact revision,
// kv.ErrFutureRev, and as HashKV.
func (s *Store) HashAt(ctx context.Context, revision, compact int64) (uint32, error) {
	res, err := s.hash(ctx, func(snap *snapshot) (lower, at int64, err error) {
		switch {
		case max(snap.compact, 0) > max(compact, 0):
			err = &kv.CompactedError{CompactRevision: snap.compact}
		case revision > snap.rev || compact > revision:
			err = kv.ErrFutureRev
		}
		return compact, revision, err
	})
	return res.Hash, err
}

// hashNow computes a hash on the current state.
func (s *Store) hashNow(ctx context.Context, revision int64) (kv.HashResult, error) {
	return s.hash(ctx, func(snap *snapshot) (lower, at int64, err error) {
		at, err = snap.hashRevision(revision)
		return snap.compact, at, err
	})
}

// hash computes a hash on the current state, of the records that which chooses.
func (s *Store) hash(ctx context.Context,
	which func(*snapshot) (lower, at int64, err error)) (kv.HashResult, error) {
	select {
	case s.hashes.slot <- struct{}{}:
		defer func() { <-s.hashes.slot }()
	case <-ctx.Done():
		return kv.HashResult{}, ctx.Err()
	case <-s.trim.quit:
		return kv.HashResult{}, history.ErrClosed
	}
	snap := s.hashes.hold(s)
	defer s.hashes.release()
	lower, at, err := which(snap)
	if err != nil {
		return kv.HashResult{}, err
	}
	h := hashing{Rests: s.newRests(), snap: snap, lower: lower, at: at, limit: s.hashes.states}
	sum, err := h.run(ctx)
	if err != nil {
		return kv.HashResult{}, err
	}
	return kv.HashResult{Hash: sum, HashRevision: at, CompactRevision: snap.compact,
		Revision: snap.rev}, nil
}

// hashRevision turns the revision that a call names into the one to hash. As in etcd, a negative
// one is a revision without records.
func (snap *snapshot) hashRevision(revision int64) (int64, error) {
	switch {
	case revision == 0:
		return snap.rev, nil
	case revision > 0 && revision < snap.compact:
		return 0, &kv.CompactedError{CompactRevision: snap.compact}
	case revision > snap.rev:
		return 0, kv.ErrFutureRev
	}
	return revision, nil
}

// hashing is one computation of a hash. The snapshot may be newer than at, as long as neither the
// index nor the history has lost anything that lower and at need.
type hashing struct {
	*pace.Rests
	snap *snapshot
	// lower is the compact revision, at the revision to hash.
	lower, at int64
	// compacting says that the hash is the hash of a compaction at the revision at.
	compacting bool

	// states holds the revisions, in order, of the records at or below lower that count. With
	// scattered set they are more than the limit, and the index decides for each record.
	states    []index.Change
	scattered bool
	limit     int
}

// alive is the function alive with rests.
func (h *hashing) alive(ctx context.Context, i int) error {
	if i&1023 == 1023 {
		h.Pause()
	}
	return alive(ctx, i)
}

// run computes the hash.
func (h *hashing) run(ctx context.Context) (uint32, error) {
	// At or below lower, the records count that a compaction at the revision to hash would keep. If
	// it would keep none at all, the records count that the compaction at lower has kept.
	state := h.at
	if h.lower > 0 {
		kept, err := h.keepsAny(ctx)
		if err != nil {
			return 0, err
		}
		if !kept {
			state = h.lower
		}
		if err := h.gather(ctx, state); err != nil {
			return 0, err
		}
	}
	sum := crc32.Update(0, castagnoli, []byte("key"))
	head := [18]byte{8: '_', 17: 't'}
	sc := h.snap.hist.Scan(kv.Rev{})
	defer sc.Close()
	for left := 0; sc.Next(); {
		rev, data, tombstone := sc.Rev(), sc.Data(), sc.Tombstone()
		if rev.Main > h.at {
			break
		}
		if left -= len(data) + 64; left < 0 {
			h.Pause()
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			left = hashPause
		}
		id := head[:17]
		if tombstone || rev.Main <= h.lower {
			key, size, err := record.LeadingKey(data)
			if err != nil {
				return 0, fmt.Errorf("mvcc: hash: %w at revision %d.%d: %w", err, rev.Main,
					rev.Sub, kv.ErrCorrupt)
			}
			if rev.Main <= h.lower && (tombstone || !h.isState(key, rev, state)) {
				continue
			}
			if tombstone {
				// etcd stores a deletion as a record of the key alone.
				id, data = head[:], data[:size]
			}
		}
		binary.BigEndian.PutUint64(head[:], uint64(rev.Main))
		binary.BigEndian.PutUint64(head[9:], uint64(rev.Sub))
		sum = crc32.Update(sum, castagnoli, id)
		sum = crc32.Update(sum, castagnoli, data)
	}
	if err := sc.Err(); err != nil {
		return 0, fmt.Errorf("mvcc: hash: %w", err)
	}
	return sum, nil
}

// gather sets states, or scattered if there are too many.
func (h *hashing) gather(ctx context.Context, at int64) error {
	n := 0
	h.states = make([]index.Change, 0, min(h.snap.tree.Len(), h.limit))
	for it := h.snap.tree.Range("", ""); it.Next(); n++ {
		if err := h.alive(ctx, n); err != nil {
			return err
		}
		list := index.At(&it).Changes()
		i := list.Find(at)
		if i < 0 || list.Main(i) > h.lower || list.At(i).Tombstone() {
			continue
		}
		if len(h.states) == h.limit {
			h.states, h.scattered = nil, true
			return nil
		}
		h.states = append(h.states, list.At(i))
	}
	slices.SortFunc(h.states, func(a, b index.Change) int {
		return cmp.Or(cmp.Compare(a.Main, b.Main), cmp.Compare(a.Rev().Sub, b.Rev().Sub))
	})
	return nil
}

// isState reports whether rev is the newest change of the key at or below a revision. The caller
// asks in the order of the revisions.
func (h *hashing) isState(key []byte, rev kv.Rev, at int64) bool {
	if !h.scattered {
		for len(h.states) > 0 && h.states[0].Rev().Less(rev) {
			h.states = h.states[1:]
		}
		return len(h.states) > 0 && h.states[0].Rev() == rev
	}
	e, ok := index.Of(h.snap.tree, str(key))
	if !ok {
		return false
	}
	list := e.Changes()
	i := list.Find(at)
	return i >= 0 && list.At(i).Rev() == rev
}

// keepsAny reports whether a compaction at the revision to hash keeps anything. In etcd a deletion
// at that very revision counts when it compacts, but not when it only hashes; the deletion then
// even hides a later put of the key in the same revision.
func (h *hashing) keepsAny(ctx context.Context) (bool, error) {
	n := 0
	for it := h.snap.tree.Range("", ""); it.Next(); n++ {
		if err := h.alive(ctx, n); err != nil {
			return false, err
		}
		list := index.At(&it).Changes()
		i := list.Find(h.at)
		if i < 0 {
			continue
		}
		kept := !list.At(i).Tombstone()
		for ; i >= 0 && list.Main(i) == h.at; i-- {
			if list.At(i).Tombstone() {
				kept = h.compacting
			}
		}
		if kept {
			return true, nil
		}
	}
	return false, nil
}
