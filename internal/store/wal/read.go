package wal

import (
	"hash/crc32"
	"io"
	"math/bits"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/vfs"
)

const (
	// readBytes is the most that one read of entries asks the disk for, unless one entry is larger.
	readBytes = 1 << 20
	// readGap is the most that lies between two entries that are read in one go.
	readGap = 4096
)

func itemCRC(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// last returns the index of the last entry, or of the start without one. mu is held.
func (w *WAL) last() uint64 { return w.mu.start.Index + uint64(w.mu.slots.len()) }

// lastTerm returns the term at last. mu is held.
func (w *WAL) lastTerm() uint64 {
	if n := w.mu.slots.len(); n > 0 {
		return w.mu.slots.at(n - 1).term
	}
	return w.mu.start.Term
}

// slot returns the slot of an index between first and last. mu is held.
func (w *WAL) slot(index uint64) *slot { return w.mu.slots.at(int(index - w.mu.start.Index - 1)) }

// segment returns the segment of a slot. mu is held.
func (w *WAL) segment(s *slot) *segment { return w.mu.segs[s.seg-uint32(w.mu.segs[0].id)] }

// resetTo drops all entries. mu is held.
func (w *WAL) resetTo(start Start) {
	w.mu.start = start
	w.mu.slots.truncate(0)
	w.mu.bytes = 0
	w.mu.cache.truncate(0)
	w.mu.cacheBytes = 0
}

// putSlot adds an entry at most one after the last, and drops the entries from its index on. A
// caller that wants it cached pushes it after that. mu is held.
func (w *WAL) putSlot(index uint64, s slot) {
	if keep := int(index - w.mu.start.Index - 1); keep < w.mu.slots.len() {
		cached := w.mu.cache.len() - (w.mu.slots.len() - keep)
		for i := max(cached, 0); i < w.mu.cache.len(); i++ {
			w.mu.cacheBytes -= cacheCost(*w.mu.cache.at(i))
		}
		w.mu.cache.truncate(max(cached, 0))
		for i := keep; i < w.mu.slots.len(); i++ {
			w.mu.bytes -= int64(w.mu.slots.at(i).size)
		}
		w.mu.slots.truncate(keep)
	}
	w.mu.slots.push(s)
	w.mu.bytes += int64(s.size)
}

func cacheCost(e *raftpb.Entry) int64 { return entryHeadSize + int64(len(e.Data)) }

// shrinkCache drops the oldest cached entries while there are too many bytes of them. mu is held.
func (w *WAL) shrinkCache() {
	k := 0
	for ; w.mu.cacheBytes > w.o.CacheBytes; k++ {
		w.mu.cacheBytes -= cacheCost(*w.mu.cache.at(k))
	}
	w.mu.cache.popFront(k)
}

// Uncache removes the entries up to index from memory. They can still be read.
func (w *WAL) Uncache(index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	after := max(w.last(), index) - index
	k := max(w.mu.cache.len()-int(min(after, uint64(w.mu.cache.len()))), 0)
	for i := range k {
		w.mu.cacheBytes -= cacheCost(*w.mu.cache.at(i))
	}
	w.mu.cache.popFront(k)
}

// HardState returns a copy of the last hard state, nil if there has never been one.
func (w *WAL) HardState() *raftpb.HardState {
	w.mu.RLock()
	defer w.mu.RUnlock()
	h := w.mu.hard
	if h == (hardState{}) {
		return nil
	}
	return &raftpb.HardState{Term: &h.term, Vote: &h.vote, Commit: &h.commit}
}

// FirstIndex returns the index of the first entry, or of the next entry if there is none. Opening
// a log may find entries again that TruncateBefore released. The error is nil.
func (w *WAL) FirstIndex() (uint64, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.mu.start.Index + 1, nil
}

// LastIndex returns the index of the last entry, FirstIndex-1 if there is none. The error is nil.
func (w *WAL) LastIndex() (uint64, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.last(), nil
}

// Bytes returns the size on disk of the entries from first to last.
func (w *WAL) Bytes() int64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.mu.bytes
}

// Term returns the term of an entry between FirstIndex-1 and LastIndex; raft.ErrCompacted below
// that, raft.ErrUnavailable above.
func (w *WAL) Term(index uint64) (uint64, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	switch {
	case index < w.mu.start.Index:
		return 0, raft.ErrCompacted
	case index == w.mu.start.Index:
		return w.mu.start.Term, nil
	case index > w.last():
		return 0, raft.ErrUnavailable
	}
	return w.slot(index).term, nil
}

// Entries returns the entries from lo up to but not including hi, as many from the first on as
// encode to at most maxBytes of protobuf, but at least one. The caller owns the slice; it must not
// change the entries. It fails with raft.ErrCompacted if lo is below FirstIndex, with
// raft.ErrUnavailable if an entry does not exist, and with a CorruptError if one on disk is bad.
func (w *WAL) Entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	w.mu.RLock()
	if err := w.checkRange(lo, hi); err != nil || lo == hi {
		w.mu.RUnlock()
		return nil, err
	}
	hi = w.limit(lo, hi, maxBytes)
	ents := make([]*raftpb.Entry, hi-lo)
	cached := w.cachedFrom()
	for i := max(lo, cached); i < hi; i++ {
		ents[i-lo] = *w.mu.cache.at(int(i - cached))
	}
	runs := w.runs(lo, min(hi, cached))
	w.mu.RUnlock()

	var err error
	at := 0
	for _, r := range runs {
		if err == nil {
			err = r.read(ents[at:])
			w.stats.diskReads.Add(1)
		}
		at += len(r.slots)
		// An error of closing a file does not matter once it was read.
		_ = r.seg.release()
	}
	if err != nil {
		return nil, vfs.MarkShortage(err)
	}
	return ents, nil
}

// Cached is Entries without reading a file: it returns nothing if the entry at lo is not in memory.
func (w *WAL) Cached(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	cached := w.cachedFrom()
	if err := w.checkRange(lo, hi); err != nil || lo == hi || lo < cached {
		return nil, err
	}
	ents := make([]*raftpb.Entry, w.limit(lo, hi, maxBytes)-lo)
	for i := range ents {
		ents[i] = *w.mu.cache.at(int(lo-cached) + i)
	}
	return ents, nil
}

// Outline returns the entries from lo up to but not including hi without their data: at most
// outlineEntries from the first on. It reads no file.
func (w *WAL) Outline(lo, hi uint64) ([]*raftpb.Entry, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.checkRange(lo, hi); err != nil {
		return nil, err
	}
	ents := make([]*raftpb.Entry, min(hi-lo, outlineEntries))
	for i := range ents {
		index := lo + uint64(i)
		s := w.slot(index)
		ents[i] = &raftpb.Entry{Index: &index, Term: new(s.term)}
		if s.flags&flagType != 0 {
			ents[i].Type = raftpb.EntryType(s.typ).Enum()
		}
	}
	return ents, nil
}

// outlineEntries limits one answer of Outline.
const outlineEntries = 4096

// checkRange returns why the entries from lo up to but not including hi cannot be read, nil if they
// can. mu is held.
func (w *WAL) checkRange(lo, hi uint64) error {
	switch {
	case w.mu.closed:
		return ErrClosed
	case lo <= w.mu.start.Index:
		return raft.ErrCompacted
	case lo > hi || hi > w.last()+1:
		return raft.ErrUnavailable
	}
	return nil
}

// cachedFrom returns the index of the first entry in memory. mu is held.
func (w *WAL) cachedFrom() uint64 { return w.last() + 1 - uint64(w.mu.cache.len()) }

// limit returns the index after the last entry that fits. mu is held.
func (w *WAL) limit(lo, hi, maxBytes uint64) uint64 {
	size := w.slot(lo).protoSize(lo)
	for i := lo + 1; i < hi; i++ {
		if size += w.slot(i).protoSize(i); size > maxBytes {
			return i
		}
	}
	return hi
}

// protoSize is the size of the entry in protobuf, which raft's limits count.
func (s *slot) protoSize(index uint64) uint64 {
	n := 2 + uvarintLen(s.term) + uvarintLen(index)
	if s.flags&flagType != 0 {
		n += 2 // types are small
	}
	if data := uint64(s.size - entryHeadSize); s.flags&flagData != 0 {
		n += 1 + uvarintLen(data) + data
	}
	return n
}

func uvarintLen(v uint64) uint64 { return uint64(bits.Len64(v|1)+6) / 7 }

// run is a stretch of a segment whose entries are read in one go.
type run struct {
	seg   *segment
	index uint64
	slots []slot
}

// runs splits the entries from lo up to but not including hi. The caller releases the segments. mu
// is held.
func (w *WAL) runs(lo, hi uint64) []run {
	if lo >= hi {
		return nil
	}
	slots := make([]slot, 0, hi-lo)
	var out []run
	for i := lo; i < hi; i++ {
		s := *w.slot(i)
		slots = append(slots, s)
		if n := len(out); n > 0 {
			r := &out[n-1]
			first, prev := &r.slots[0], &r.slots[len(r.slots)-1]
			if s.seg == prev.seg && s.off >= prev.end() && s.off-prev.end() <= readGap &&
				s.end()-first.off <= readBytes {
				r.slots = r.slots[:len(r.slots)+1]
				continue
			}
		}
		seg := w.segment(&s)
		seg.acquire()
		out = append(out, run{seg: seg, index: i, slots: slots[len(slots)-1:]})
	}
	return out
}

func (s *slot) end() int64 { return s.off + int64(s.size) }

// read fills ents with the entries of the run. They share one buffer.
func (r *run) read(ents []*raftpb.Entry) error {
	from := r.slots[0].off
	b := make([]byte, r.slots[len(r.slots)-1].end()-from)
	if n, err := r.seg.file.ReadAt(b, from); n < len(b) {
		if err == io.EOF {
			return r.seg.corrupt(from+int64(n), "the file ends inside an entry")
		}
		return err
	}
	slabs := make([]entrySlab, len(r.slots))
	for i := range r.slots {
		s := &r.slots[i]
		raw := b[s.off-from : s.end()-from : s.end()-from]
		it, size, err := parseItem(raw)
		index := r.index + uint64(i)
		if itemCRC(raw) != s.crc || err != nil || size != len(raw) || it.kind != kindEntry ||
			it.index != index || it.term != s.term {
			return r.seg.corrupt(s.off,
				"entry %d has changed since it was written or last read", index)
		}
		ents[i] = slabs[i].setItem(&it)
	}
	return nil
}
