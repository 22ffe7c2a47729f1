package mvcc

import (
	"context"
	"math"
	"slices"
	"sync"

	"vigil/internal/kv"
)

// hashesKept is the number of hashes of compactions that a store remembers, as in etcd.
const hashesKept = 10

// compaction is a committed compaction at rev; the previous one was at prev.
type compaction struct{ prev, rev int64 }

// hashes holds the hashes of compactions, and the state that keeps the trimmer from dropping the
// records that a hash in progress needs.
type hashes struct {
	// slot holds a token while HashKV computes a hash: a second computation would only slow down
	// the first.
	slot chan struct{}
	// states is hashStates, or the value that a test has set.
	states int

	mu struct {
		sync.Mutex
		// known holds the hashes of the newest compactions, by revision.
		known []kv.HashResult
		// due holds the compactions whose hash still has to be computed, oldest first.
		due []compaction
		// held is the compact revision of the state that HashKV is reading, or free.
		held int64
		// notifyLocked closes and replaces changed when due or held has changed.
		changed chan struct{}
	}
}

// free is above every compact revision.
const free = math.MaxInt64

func (h *hashes) init() {
	h.slot = make(chan struct{}, 1)
	h.states = hashStates
	h.mu.held = free
	h.mu.changed = make(chan struct{})
}

func (h *hashes) notifyLocked() {
	close(h.mu.changed)
	h.mu.changed = make(chan struct{})
}

// CompactionHashes returns the remembered hashes of compactions, oldest first: HashKV returns these
// at once. The result lacks hashes that are still due.
func (s *Store) CompactionHashes() []kv.HashResult {
	s.hashes.mu.Lock()
	defer s.hashes.mu.Unlock()
	return slices.Clone(s.hashes.mu.known)
}

// find returns the hash of the compaction at a revision; or, if the hash is still due, a channel
// that is closed when due or held has changed.
func (h *hashes) find(revision int64) (res kv.HashResult, due <-chan struct{}, found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, res := range h.mu.known {
		if res.HashRevision == revision {
			return res, nil, true
		}
	}
	for _, c := range h.mu.due {
		if c.rev == revision {
			return res, h.mu.changed, false
		}
	}
	return res, nil, false
}

// hold returns the newest snapshot and keeps the trimmer from going beyond the snapshot's compact
// revision until release. The caller has the slot.
func (h *hashes) hold(s *Store) *snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	snap := s.snap.Load()
	h.mu.held = snap.compact
	return snap
}

func (h *hashes) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.held = free
	h.notifyLocked()
}

// enqueue makes the hashes of compactions due. The writer calls it before the compactions are
// readable, so that the trimmer finds each compaction here before it begins with it.
func (h *hashes) enqueue(list []compaction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.due = append(h.mu.due, list...)
	if n := len(h.mu.due) - hashesKept; n > 0 {
		// The store would forget their hashes at once.
		h.mu.due = slices.Delete(h.mu.due, 0, n)
		h.notifyLocked()
	}
}

// next returns the oldest compaction at or below a revision whose hash is due.
func (h *hashes) next(to int64) (compaction, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.due) == 0 || h.mu.due[0].rev > to {
		return compaction{}, false
	}
	return h.mu.due[0], true
}

// done removes a compaction from due, and keeps its hash if there is one.
func (h *hashes) done(c compaction, res *kv.HashResult) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.due = slices.DeleteFunc(h.mu.due, func(d compaction) bool { return d == c })
	if res != nil {
		h.mu.known = append(h.mu.known, *res)
		h.mu.known = slices.Delete(h.mu.known, 0, max(len(h.mu.known)-hashesKept, 0))
	}
	h.notifyLocked()
}

// wait waits until no hash in progress needs the records that a compaction at a revision makes
// needless. It returns false if quit is closed first.
func (h *hashes) wait(to int64, quit <-chan struct{}) bool {
	for {
		h.mu.Lock()
		held, changed := h.mu.held, h.mu.changed
		h.mu.Unlock()
		if held >= to {
			return true
		}
		select {
		case <-changed:
		case <-quit:
			return false
		}
	}
}

// hashDue computes the due hashes of the compactions up to a revision. It runs before the trimmer
// trims anything for them. It returns false if ctx ended.
func (s *Store) hashDue(ctx context.Context, to int64) bool {
	for {
		c, ok := s.hashes.next(to)
		if !ok {
			return true
		}
		h := hashing{Rests: s.newRests(), snap: s.snap.Load(), lower: c.prev, at: c.rev,
			compacting: true, limit: s.hashes.states}
		sum, err := h.run(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case err != nil:
			s.log.ReportDamage(err)
			s.opts.Logger.Warn("no hash for a compaction", "compact-revision", c.rev, "error", err)
			s.hashes.done(c, nil)
		default:
			s.hashes.done(c, &kv.HashResult{Hash: sum, HashRevision: c.rev,
				CompactRevision: c.prev})
		}
	}
}
