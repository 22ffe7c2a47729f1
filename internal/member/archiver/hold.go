package archiver

import "sync"

// Hold keeps entries of the raft log that the archive lacks. The archiver sets it; the truncation
// of the log reads it.
type Hold struct {
	maxBytes   int64
	maxEntries uint64
	mu         struct {
		sync.Mutex
		// archived is the index up to which the archive is complete.
		archived uint64
		// off is set while keeping entries is pointless: the archive belongs to another cluster.
		off bool
		// held is the number of entries that the last truncation kept.
		held uint64
	}
}

// bytesPerEntry limits the number of held entries, because each takes memory in the raft log:
// smaller entries count as this size.
const bytesPerEntry = 1 << 10

// NewHold returns a Hold that keeps up to max bytes of the raft log, and one entry for each KiB of
// them.
func NewHold(max int64) *Hold {
	return &Hold{maxBytes: max, maxEntries: uint64(max / bytesPerEntry)}
}

// LimitTruncation returns the index up to which the raft log may be truncated, at most cut: entries
// that the archive lacks are kept within the limits. first is the first index of the log, extra how
// many bytes it has beyond what the member keeps anyway.
func (h *Hold) LimitTruncation(first, cut uint64, extra int64) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.held = 0
	// Entries below first are gone. After a start nothing is known to be archived.
	from := max(h.mu.archived, first-1)
	if h.mu.off || cut <= from || extra > h.maxBytes || cut-from > h.maxEntries {
		return cut
	}
	h.mu.held = cut - from
	return from
}

// noteArchived notes that the archive needs nothing at or below an index. A smaller index than
// before changes nothing: a leader that has just been elected knows less than the one before.
func (h *Hold) noteArchived(index uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.archived = max(h.mu.archived, index)
}

// setOff turns holding off or on.
func (h *Hold) setOff(off bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.off = off
}

// Held returns the number of entries that the last truncation kept for the archive.
func (h *Hold) Held() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.held
}
