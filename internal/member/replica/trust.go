package replica

import (
	"sync"
	"sync/atomic"

	"vigil/internal/kv"
)

// trust says whether this member may serve its data.
type trust struct {
	// lost is set while the alarm CORRUPT names this member, there are other members, and the reason is not damage on
	// disk: the data can be read and are wrong.
	lost atomic.Bool
	mu   struct {
		sync.Mutex
		named   bool
		changed chan struct{} // closed when lost changes
	}
}

func (t *trust) init() { t.mu.changed = make(chan struct{}) }

// setNamed notes whether CORRUPT names this member. Whether the reason is damage counts when that changes.
func (t *trust) setNamed(named, damaged bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if named == t.mu.named {
		return
	}
	t.mu.named = named
	if lost := named && !damaged; lost != t.lost.Load() {
		t.lost.Store(lost)
		close(t.mu.changed)
		t.mu.changed = make(chan struct{})
	}
}

// check returns kv.ErrCorrupt while this member must not serve what it reads.
func (t *trust) check() error {
	if t.lost.Load() {
		return kv.ErrCorrupt
	}
	return nil
}

// Untrusted reports whether this member must not serve because its data differ from those of the others, and returns a
// channel that is closed when that changes.
func (r *Replica) Untrusted() (bool, <-chan struct{}) {
	t := &r.trust
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost.Load(), t.mu.changed
}
