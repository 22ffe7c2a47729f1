package history

import "vigil/internal/kv"

// CheckRoom returns nil while there is room for writes that add to the store: the segment after the
// open one and the reserve exist, or are being allocated, and no batch waits for room. Otherwise
// the error is a kv.Shortage, or another error of the allocation, which is retried. Call CheckRoom
// before accepting writes; accepted writes fit into the open segment while it has space. A call
// makes the log retry from time to time. It takes no lock while there is room.
func (l *Log) CheckRoom() error {
	refused := l.refused.Load()
	if refused == nil && !l.end.over.Load() && !l.seal.stuck.Load() && !l.alloc.short.Load() {
		return nil
	}
	if err := l.end.checkWritable(); err != nil {
		return err
	}
	if err := l.seal.shortageError(); err != nil {
		return err // the sealer tries again
	}
	if err := l.alloc.lackError(); err != nil {
		return err
	}
	if refused != nil {
		return *refused // a batch larger than a segment
	}
	return nil
}

// Allocated returns how many bytes fit without another allocation: the size of the next segment, or
// while there is none the rest of the open one. kept of them are for requests that make the store
// smaller. The reserve does not count: a rewrite may need it. It takes no lock.
func (l *Log) Allocated() (bytes, kept int64) {
	if bytes = l.alloc.ahead.Load(); bytes == 0 {
		bytes = l.left.Load()
	}
	return bytes, l.sizes.keptSize()
}

// CheckRoomForRemovals is CheckRoom for requests that make the store smaller and are small
// themselves, such as deletions and compactions. There is room for them while the next segment or
// the reserve exists, or half of the bytes that are kept for them. The other half is for requests
// that were accepted before.
func (l *Log) CheckRoomForRemovals() error {
	err := l.CheckRoom()
	if kv.Shortage(err) && (l.alloc.hasAny() || l.left.Load() >= l.sizes.keptSize()/2) {
		return nil
	}
	return err
}
