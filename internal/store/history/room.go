package history

import (
	"time"
	"vigil/internal/kv"
)

// Room returns nil while there is room for writes that add to the store: the segment after the open one and the reserve
// exist, or are being allocated, and no batch waits for room. Otherwise the error is a kv.Shortage, or another error of the allocation, which is
// retried. Call Room before accepting writes; accepted writes fit into the open segment while it has space. A call makes
// the log retry from time to time. It takes no lock while there is room.
func (l *Log) Room() error {
	a, seal, refused := l.alloc, l.seal, l.refused.Load()
	if refused == nil && !l.ended.Load() && !seal.stuck.Load() && !a.short.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.aliveLocked(); err != nil {
		return err
	}
	if kv.Shortage(seal.err) {
		return seal.err // the sealer tries again
	}
	if a.err == nil || a.next != nil && a.reserve != nil {
		if refused != nil {
			return *refused // a batch larger than a segment
		}
		return nil
	}
	if !a.wanted && time.Since(a.triedAt) >= allocatePause {
		a.wanted = true
		l.mu.changed.Broadcast()
	}
	return a.err
}

// kept is how much of the last segment is for what makes the store smaller.
func (o *Options) kept() int64 { return min(o.SegmentBytes, smallSegment) / 4 }

// Allocated returns how many bytes fit whatever the disk has: those of the next segment, or while there is none
// what is left of the open one. kept of them are for what makes the store smaller. The reserve does not count: a
// rewrite may need it. It takes no lock.
func (l *Log) Allocated() (bytes, kept int64) {
	if bytes = l.alloc.ahead.Load(); bytes == 0 {
		bytes = l.left.Load()
	}
	return bytes, l.o.kept()
}

// RoomToFree is Room for what makes the store smaller, such as deletions and compactions, which are
// small themselves: there is room for them while the next segment or the reserve is there, or half of
// what is kept for them. The other half is for those that were taken on before.
func (l *Log) RoomToFree() error {
	err := l.Room()
	if !kv.Shortage(err) {
		return err
	}
	l.mu.Lock()
	more := l.alloc.next != nil || l.alloc.reserve != nil
	l.mu.Unlock()
	if more || l.left.Load() >= l.o.kept()/2 {
		return nil
	}
	return err
}
