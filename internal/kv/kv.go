// Package kv is the vocabulary of all layers of Vigil: requests, results, events and errors of the
// key-value model.
//
// It holds plain data and no behavior beyond what follows from the data itself: it starts no
// goroutine, does no I/O and imports nothing of the project. It uses the names and meanings of the
// etcd v3 API. The wire encodings are in internal/edge/rpc/wire for clients and in package fsm for
// the raft log.
//
// The receiver of a request or a result never modifies its byte slices. The function that passes a
// slice says whether the receiver may keep it.
package kv

// Rev is the position of one record in history: Main is the revision of the transaction that wrote
// it, Sub the position in that transaction, from 0.
type Rev struct {
	Main int64
	Sub  int64
}

// Less reports whether r is before o in history.
func (r Rev) Less(o Rev) bool {
	return r.Main < o.Main || r.Main == o.Main && r.Sub < o.Sub
}

// Header identifies the member that answers, and the state of the store at that time.
type Header struct {
	ClusterID uint64
	MemberID  uint64
	Revision  int64
	Term      uint64
}

// At returns the header with another revision.
func (h Header) At(revision int64) Header {
	h.Revision = revision
	return h
}

// Event is one change of one key, as a watcher sees it.
type Event struct {
	Rev Rev
	// Delete is set for a deletion, clear for a put.
	Delete bool
	// Create is set on a put that made the key exist: its create revision is its mod revision.
	Create bool
	// Key aliases KV.
	Key []byte
	// KV is the encoded mvccpb.KeyValue of the event: the pair that was put, or the key and the mod
	// revision of a deletion. It is immutable and may be kept.
	KV []byte
}

// EventBuffer is memory that a reader of events reuses. The zero value is empty. The events of one
// call are valid until the next call.
type EventBuffer struct {
	Events []Event
	Data   []byte
}
