package fsm

import (
	"encoding/binary"
	"errors"

	"vigil/internal/store/history"
)

// An entry may write far more than it holds: a put that keeps the value writes a copy of it, the end of a
// lease deletes its keys. So an entry may be spread over several batches of history. Each batch but the
// last carries the position of the entry before, since the entry is not applied yet, and a record that says
// how many of its requests are: after a crash the entry comes again and goes on there. How entries are
// divided differs between members and has no effect on what they come to.
//
// A single request is never divided, so it is refused if its records may not fit into one batch; see
// mvcc.Limits. The end of a lease cannot be refused: it deletes the keys in several revisions if one cannot
// hold the deletions, and the lease exists until the last of them.

// DefaultBatchBytes is the size of a batch, with the results of its requests, at which the
// rest of an entry is left to the next batch.
const DefaultBatchBytes = 8 << 20

// The record of an entry that is carried out in part is in raftBucket under partKey: a version byte, then
// the index of the entry, the number of requests that are done, and the number of items of the next one that
// are, as uvarint.
const partVersion byte = 1

var partKey = []byte("part")

// part is the entry under way.
type part struct {
	index uint64
	// done is the number of requests that are carried out, step that of items of the next one.
	done, step int
	// stored says that the store has the record.
	stored bool
	// ended is the number of leases that the request under way has ended in this process.
	ended int
}

// begin begins with an entry of which nothing is done.
func (p *part) begin(index uint64) { *p = part{index: index, stored: p.stored} }

// next goes on to the next request.
func (p *part) next() { p.done, p.step, p.ended = p.done+1, 0, 0 }

func (p *part) record() history.Meta {
	b := []byte{partVersion}
	for _, n := range [...]uint64{p.index, uint64(p.done), uint64(p.step)} {
		b = binary.AppendUvarint(b, n)
	}
	return history.Meta{Bucket: raftBucket, Key: partKey, Value: b}
}

func parsePart(b []byte) (part, error) {
	malformed := errors.New("malformed record of an entry that is carried out in part")
	if len(b) == 0 || b[0] != partVersion {
		return part{}, malformed
	}
	d := Decoder{b: b[1:]}
	index, done, step := d.uvarint(), d.uvarint(), d.uvarint()
	if d.bad || len(d.b) != 0 || index == 0 || done|step >= 1<<32 {
		return part{}, malformed
	}
	return part{index: index, done: int(done), step: int(step), stored: true}, nil
}

// SetBatchBytes changes DefaultBatchBytes. It need not be the same on all members.
func (m *Machine) SetBatchBytes(n int64) { m.batchBytes = n }

// full reports whether a request that can be divided should leave the rest to the next batch. Each batch
// has something of it.
func (m *Machine) full() bool { return int64(m.store.Pending()) >= max(m.batchBytes, 1) }

// endPart ends the entry under way.
func (m *Machine) endPart() error {
	stored := m.part.stored
	m.part = part{}
	if !stored {
		return nil
	}
	return m.store.SetMeta(history.Meta{Bucket: raftBucket, Key: partKey, Deleted: true})
}

// storePart notes in the batch how much of the entry under way is applied.
func (m *Machine) storePart() error {
	m.part.stored = true
	return m.store.SetMeta(m.part.record())
}
