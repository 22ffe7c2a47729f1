package position

import "sync"

// Trail remembers how many bytes of entries were applied up to which position, coarsely, and how
// much was applied since the raft log was last shortened. Its methods may be called concurrently.
type Trail struct {
	mu struct {
		sync.Mutex
		marks    []mark
		requests uint64
		bytes    int64 // applied since the start
		cut      int64 // bytes at the last shortening
	}
	step int64
	due  TrailBounds
	wake chan struct{}
}

// mark says that the entries up to index have bytes.
type mark struct {
	index uint64
	bytes int64
}

// TrailBounds are the bounds at which the log is to be shortened.
type TrailBounds struct {
	Requests uint64
	Bytes    int64
}

// NewTrail returns the trail of entries after index. step is about how many bytes are between
// remembered positions.
func NewTrail(index uint64, step int64, due TrailBounds) *Trail {
	t := &Trail{step: max(step, 1), due: due, wake: make(chan struct{}, 1)}
	t.mu.marks = []mark{{index: index}}
	return t
}

// Due receives when the log is to be shortened.
func (t *Trail) Due() <-chan struct{} { return t.wake }

// Add notes that entries up to index were applied.
func (t *Trail) Add(index, requests uint64, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.requests += requests
	t.mu.bytes += bytes
	if last := t.mu.marks[len(t.mu.marks)-1]; t.mu.bytes-last.bytes >= t.step {
		t.mu.marks = append(t.mu.marks, mark{index, t.mu.bytes})
	}
	if t.mu.requests >= t.due.Requests || t.mu.bytes-t.mu.cut >= t.due.Bytes {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// Keep returns the index up to which entries are given up if those up to synced are not needed for
// recovery: at most entries, and about bytes, remain.
func (t *Trail) Keep(synced, entries uint64, bytes int64) (cut uint64) {
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
