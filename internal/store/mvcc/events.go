package mvcc

import (
	"fmt"
	"unsafe"
	"vigil/internal/kv"
	"vigil/internal/store/mvcc/record"
)

// eventBytes is the size of the pieces of memory that Events copies records into.
const eventBytes = 64 << 10

// mostKept is the most memory, in bytes, that a buffer keeps for the next call.
const mostKept = 1 << 20

// keepEvents leaves in buf the memory that the next call may reuse.
func keepEvents(buf *kv.EventBuffer, events []kv.Event, chunk []byte) {
	*buf = kv.EventBuffer{}
	if cap(events)*int(unsafe.Sizeof(kv.Event{})) <= mostKept {
		buf.Events = events
	}
	if cap(chunk) <= mostKept {
		buf.Data = chunk
	}
}

// Events returns the existing changes of the revisions from..to in order, in whole revisions: at
// least one revision, and no more once their records have maxBytes. next is the revision to
// continue with. The events own their memory.
//
// Errors: a *kv.CompactedError if from is below the compact revision, or one of the log.
func (s *Store) Events(from, to int64, maxBytes int) (events []kv.Event, next int64, err error) {
	return s.EventsIn(nil, from, to, maxBytes)
}

// EventsIn is Events, but puts the events into buf unless it is nil: they are valid until the next
// use of buf.
func (s *Store) EventsIn(buf *kv.EventBuffer, from, to int64, maxBytes int) (events []kv.Event,
	next int64, err error) {
	snap := s.snap.Load()
	if from < snap.compact {
		return nil, 0, &kv.CompactedError{CompactRevision: snap.compact}
	}
	events, next, err = snap.events(from, to, maxBytes, buf)
	// A compaction during the call may have removed some of the events.
	if compact := s.snap.Load().compact; from < compact {
		return nil, 0, &kv.CompactedError{CompactRevision: compact}
	}
	return events, next, err
}

// events is Events without the check for compactions.
func (snap *snapshot) events(from, to int64, maxBytes int, buf *kv.EventBuffer) (events []kv.Event,
	next int64, err error) {
	to = min(to, snap.rev)
	if from > to {
		return nil, from, nil
	}
	size, piece := 0, eventBytes
	var chunk []byte
	if buf != nil {
		events, chunk = buf.Events[:0], buf.Data[:0]
		if maxBytes <= mostKept/2 {
			piece = maxBytes + eventBytes // so that the next call needs no other piece
		}
		defer func() { keepEvents(buf, events, chunk) }()
	}
	sc := snap.hist.Scan(kv.Rev{Main: from})
	defer sc.Close()
	for sc.Next() {
		rev, data := sc.Rev(), sc.Data()
		if rev.Main > to {
			break
		}
		if size >= maxBytes && len(events) > 0 && rev.Main != events[len(events)-1].Rev.Main {
			return events, rev.Main, nil
		}
		if len(data) > cap(chunk)-len(chunk) {
			chunk = make([]byte, 0, max(len(data), min(piece, max(maxBytes-size, 4<<10))))
		}
		start := len(chunk)
		chunk = append(chunk, data...)
		ev := kv.Event{Rev: rev, Delete: sc.Tombstone(), KV: chunk[start:len(chunk):len(chunk)]}
		var rec record.KeyValue
		if err := rec.Decode(ev.KV); err != nil {
			return nil, 0, fmt.Errorf("%w at revision %d.%d: %w", err, rev.Main,
				rev.Sub, kv.ErrCorrupt)
		}
		ev.Key = rec.Key
		ev.Create = !ev.Delete && rec.Create == rec.Mod
		events = append(events, ev)
		size += len(data)
	}
	if err := sc.Err(); err != nil {
		return nil, 0, fmt.Errorf("mvcc: reading the changes from revision %d: %w", from, err)
	}
	return events, to + 1, nil
}
