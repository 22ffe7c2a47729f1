package audit

import (
	"sync"
	"sync/atomic"

	"vigil/internal/kv"
)

// Trust says whether a member may serve its data. The zero value says that it may.
type Trust struct {
	// lost is set while the alarm CORRUPT names this member, there are other members, and the
	// reason is not damage on disk: the data can be read and are wrong.
	lost atomic.Bool
	mu   struct {
		sync.Mutex
		named   bool
		changed chan struct{} // closed when lost changes; nil until Lost returns it
	}
}

// SetNamed notes whether CORRUPT names this member. damaged says whether the reason is damage on
// disk; it counts only when named changes.
func (t *Trust) SetNamed(named, damaged bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if named == t.mu.named {
		return
	}
	t.mu.named = named
	if lost := named && !damaged; lost != t.lost.Load() {
		t.lost.Store(lost)
		if t.mu.changed != nil {
			close(t.mu.changed)
			t.mu.changed = nil
		}
	}
}

// Check returns kv.ErrCorrupt while this member must not serve its data.
func (t *Trust) Check() error {
	if t.lost.Load() {
		return kv.ErrCorrupt
	}
	return nil
}

// Lost reports whether this member must not serve because its data differ from the others',
// and returns a channel that is closed when that changes.
func (t *Trust) Lost() (bool, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.changed == nil {
		t.mu.changed = make(chan struct{})
	}
	return t.lost.Load(), t.mu.changed
}
