// Package kv is the vocabulary that every layer of Vigil speaks: requests, results, events and
// errors of the key-value model.
//
// It holds plain data and no behaviour beyond what follows from the data itself: it starts no
// goroutine, does no I/O and imports nothing of the project. Its names and meanings are those of
// the etcd v3 API; the wire encodings live elsewhere (internal/edge/rpc/wire for clients, fsm for the raft log).
//
// Byte slices in requests and results are never modified by whoever receives them. Who may keep
// one is said where it is handed over.
package kv

// Rev is the place of one record in history: Main is the revision of the transaction that wrote
// it, Sub its position inside that transaction, from 0.
type Rev struct {
	Main int64
	Sub  int64
}

// Less reports whether r comes before o in history.
func (r Rev) Less(o Rev) bool {
	return r.Main < o.Main || r.Main == o.Main && r.Sub < o.Sub
}

// Header says who answered and when in the life of the store.
type Header struct {
	ClusterID uint64
	MemberID  uint64
	Revision  int64
	Term      uint64
}

// Event is one change of one key, as a watcher sees it.
type Event struct {
	Rev Rev
	// Delete tells a deletion from a put.
	Delete bool
	// Create is set on a put that made the key exist: its create revision is its mod revision.
	Create bool
	// Key aliases KV.
	Key []byte
	// KV is the encoded mvccpb.KeyValue of the event: the pair that was put, or only the key and
	// the mod revision of a deletion. It is immutable and may be kept.
	KV []byte
}

// EventBuffer is memory that a reader of events uses again from call to call. The zero value is empty.
// The events of one call are valid until the next.
type EventBuffer struct {
	Events []Event
	Data   []byte
}
