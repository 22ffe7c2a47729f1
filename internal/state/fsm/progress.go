package fsm

import (
	"encoding/binary"
	"errors"

	"vigil/internal/store/history"
)

// An entry may write far more than its own size: a put that keeps the value writes a copy of it,
// the end of a lease deletes its keys. So an entry may be spread over several batches of history.
// Each batch but the last has the position of the entry before, because the entry is not applied
// yet, and a record of how many of its requests are applied: after a crash the member applies the
// entry again from there. Members may divide entries differently, which does not change outcomes.
//
// A single request is not divided, so it is rejected if its records may not fit into one batch; see
// mvcc.Limits. The end of a lease cannot be rejected: if one revision cannot hold all deletions, it
// deletes the keys in several, and the lease exists until the last of them.

// DefaultBatchBytes is the size of a batch, with the results of its requests, at which the rest of
// an entry is left to the next batch.
const DefaultBatchBytes = 8 << 20

// The record of an entry that is partly applied is in raftBucket under progressKey: a version byte,
// then the index of the entry, the number of applied requests, and the number of applied items of
// the next request, as uvarint.
const progressVersion byte = 1

var progressKey = []byte("part")

// progress is how much of an entry is applied.
type progress struct {
	index uint64
	// requests is the number of applied requests, items the number of applied items of the next
	// request.
	requests, items int
	// stored is set if the store has the record.
	stored bool
	// ended is the number of leases that the next request has ended in this process.
	ended int
}

// begin begins an entry of which nothing is applied.
func (p *progress) begin(index uint64) { *p = progress{index: index, stored: p.stored} }

// nextRequest counts a request as applied.
func (p *progress) nextRequest() { p.requests, p.items, p.ended = p.requests+1, 0, 0 }

func (p *progress) record() history.Meta {
	b := []byte{progressVersion}
	for _, n := range [...]uint64{p.index, uint64(p.requests), uint64(p.items)} {
		b = binary.AppendUvarint(b, n)
	}
	return history.Meta{Bucket: raftBucket, Key: progressKey, Value: b}
}

func parseProgress(b []byte) (progress, error) {
	malformed := errors.New("malformed record of an entry that is partly applied")
	if len(b) == 0 || b[0] != progressVersion {
		return progress{}, malformed
	}
	d := Decoder{b: b[1:]}
	index, requests, items := d.uvarint(), d.uvarint(), d.uvarint()
	if d.bad || len(d.b) != 0 || index == 0 || requests|items >= 1<<32 {
		return progress{}, malformed
	}
	return progress{index: index, requests: int(requests), items: int(items), stored: true}, nil
}

// Divided reports whether meta records belong to a state in the middle of an entry, of which only a
// part is applied.
func Divided(meta []history.Meta) bool {
	for i := range meta {
		if meta[i].Bucket == raftBucket && string(meta[i].Key) == string(progressKey) {
			return true
		}
	}
	return false
}

// SetBatchBytes changes the size of a batch from DefaultBatchBytes. It may differ between members.
func (m *Machine) SetBatchBytes(n int64) { m.batchBytes = n }

// batchFull reports whether a request that can be divided should leave the rest to the next batch.
// Each batch contains a part of it.
func (m *Machine) batchFull() bool { return int64(m.store.Pending()) >= max(m.batchBytes, 1) }

// completeEntry ends the entry in progress.
func (m *Machine) completeEntry() error {
	stored := m.progress.stored
	m.progress = progress{}
	if !stored {
		return nil
	}
	return m.store.SetMeta(history.Meta{Bucket: raftBucket, Key: progressKey, Deleted: true})
}

// storeProgress adds the progress of the entry to the batch.
func (m *Machine) storeProgress() error {
	m.progress.stored = true
	return m.store.SetMeta(m.progress.record())
}
