package history

import (
	"bytes"
	"fmt"
	"slices"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/metas"
	"vigil/internal/vfs"
)

const (
	// growBytes is the size of a batch above which its buffer does not double any more when it
	// grows.
	growBytes = 64 << 20
	// keptBuffer is the size up to which a buffer is kept for the batches that follow.
	keptBuffer = 8 << 20
)

// writer is the state of the writer goroutine: the open segment and the current batch.
type writer struct {
	seg *growing.Segment // the open one

	// The current batch is buf[start:pos], its header not filled in yet. Bytes before start are
	// committed and never written again. inSeg is set if they are in the last chunk of seg.Memory,
	// which buf[start:] continues.
	buf        []byte
	start, pos int
	inSeg      bool
	began      bool

	pending      growing.Memory // the records of the current batch; offsets count from its start
	pendingMetas []uint32       // the offsets of its meta records
	last         kv.Rev         // the newest record, including the current batch
	time         int64          // of the records that follow
	applied      Applied
	metas        *metas.State
	view         View // the result of WriterView
}

// SetTime sets the time of the records that follow, in milliseconds since 1970; 0 if it is not
// known.
func (l *Log) SetTime(ms int64) { l.w.time = ms }

// AppendKV adds a record to the current batch: encoded is a mvccpb.KeyValue, or for a tombstone one
// with only key and mod revision. rev must be above that of every record before. The log copies
// encoded; ref is that copy, immutable and valid as long as it is referenced.
func (l *Log) AppendKV(rev kv.Rev, tombstone bool, encoded []byte) (ref []byte, err error) {
	w := &l.w
	if !w.last.Less(rev) || rev.Main <= 0 || rev.Sub < 0 || rev.Sub > 1<<31 {
		return nil, fmt.Errorf("history: revision %d/%d cannot follow %d/%d", rev.Main, rev.Sub,
			w.last.Main, w.last.Sub)
	}
	k := format.KindPut
	if tombstone {
		k = format.KindTombstone
	}
	b, err := w.addRecord(len(encoded))
	if err != nil {
		return nil, err
	}
	copy(b[format.RecordHeaderSize:], encoded)
	format.PutRecordHeader(b, k, rev, w.time)
	w.pending.Append(rev, uint32(w.pos-len(b)-w.start))
	w.last = rev
	return b[format.RecordHeaderSize:], nil
}

// MaxRecordBytes is the most data that a record holds.
const MaxRecordBytes = format.MaxRecord

// MaxBatchBytes is the most that a batch holds: the records with RecordOverhead bytes for each, and
// the batch's own header.
const MaxBatchBytes = format.MaxSegment / 2

// RecordOverhead is how many bytes a record takes in a batch in addition to its data.
const RecordOverhead = format.RecordHeaderSize

// MetaBytes returns the size of the data of a meta record.
func MetaBytes(m *Meta) int { return format.MetaSize(m) }

// Pending returns the size of the current batch, 0 if it has no record.
func (l *Log) Pending() int {
	if !l.w.began {
		return 0
	}
	return l.w.pos - l.w.start
}

// Mark is a place in the current batch.
type Mark struct {
	size    int
	records int
	metas   int
	last    kv.Rev
}

// Mark returns the end of the current batch, for Rewind.
func (l *Log) Mark() Mark {
	w := &l.w
	return Mark{size: l.Pending(), records: w.pending.Len(),
		metas: len(w.pendingMetas), last: w.last}
}

// Rewind removes the key-value records that were added since m from the current batch. There must
// have been no Commit and no AppendMeta since. References that AppendKV returned for these records
// are no longer valid.
func (l *Log) Rewind(m Mark) {
	w := &l.w
	if len(w.pendingMetas) != m.metas {
		panic("history: Rewind over a meta record")
	}
	// The padding of a batch consists of zeros.
	clear(w.buf[w.start+m.size : w.pos])
	w.pos, w.began = w.start+m.size, m.size > 0
	w.pending.Sparse = w.pending.Sparse[:m.records]
	w.last = m.last
}

// AppendMeta adds a meta record to the current batch. The log copies it.
func (l *Log) AppendMeta(m Meta) error {
	w := &l.w
	if m.Deleted {
		m.Value = nil
	}
	b, err := w.addRecord(format.MetaSize(&m))
	if err != nil {
		return err
	}
	format.PutMeta(b[format.RecordHeaderSize:], &m)
	k := format.KindMeta
	if m.Deleted {
		k = format.KindMetaDeletion
	}
	format.PutRecordHeader(b, k, kv.Rev{}, 0)
	w.pendingMetas = append(w.pendingMetas, uint32(w.pos-len(b)-w.start))
	w.metas.Apply(m)
	return nil
}

// addRecord adds space for a record with n bytes of data to the current batch, and returns it.
func (w *writer) addRecord(n int) ([]byte, error) {
	if n > format.MaxRecord {
		return nil, fmt.Errorf("history: a record of %d bytes, the limit is %d", n,
			format.MaxRecord)
	}
	if int64(w.pos-w.start)+int64(n) > MaxBatchBytes {
		return nil, fmt.Errorf("history: the batch would have more than %d bytes", MaxBatchBytes)
	}
	n += format.RecordHeaderSize
	w.ensureBuffer(n)
	from := w.pos
	w.pos += n
	return w.buf[from:w.pos:w.pos], nil
}

// ensureBuffer begins the batch if it has not begun, and makes room for n more bytes and the
// padding. References into the old buffer stay good when the batch moves to a new one.
func (w *writer) ensureBuffer(n int) {
	if !w.began {
		n += format.BatchHeaderSize
	}
	if w.pos+n+8 > len(w.buf) {
		batch := w.buf[w.start:w.pos]
		need := len(batch) + n + 8
		w.buf = make([]byte, max(growing.ChunkBytes, need+min(need, max(need/4, growBytes))))
		w.pos = copy(w.buf, batch)
		w.start = 0
		w.inSeg = false
	}
	if !w.began {
		w.began = true
		w.pos = w.start + format.BatchHeaderSize
	}
}

// Commit ends the current batch, which may be empty: it is written to the file in one write as the
// outcome of the raft log up to a, and then visible to readers. It does not sync. a must not be
// below the position before.
//
// It may wait for the seal of the segment before the open one, and for the next segment. An error
// that is a kv.Shortage means that the batch could not be written for lack of space, file
// descriptors or memory: it is kept, and Commit may be called again. Every other error is final.
func (l *Log) Commit(a Applied) error {
	w := &l.w
	if err := l.end.checkWritable(); err != nil {
		return err
	}
	if a.Index < w.applied.Index || a.Term < w.applied.Term {
		return l.end.fail(fmt.Errorf("history: position %d/%d cannot follow %d/%d", a.Term, a.Index,
			w.applied.Term, w.applied.Index))
	}
	w.ensureBuffer(0)
	err := l.makeRoom(format.Align8(int64(w.pos - w.start)))
	if err == nil {
		err = l.writeBatch(a)
	}
	if kv.Shortage(err) {
		l.refused.Store(&err)
	} else if l.refused.Load() != nil {
		l.refused.Store(nil)
	}
	return err
}

// writeBatch writes the current batch to the open segment, which has room for it, and lets readers
// see it.
func (l *Log) writeBatch(a Applied) error {
	w, seg := &l.w, l.w.seg
	n := int(format.Align8(int64(w.pos - w.start)))
	b := w.buf[w.start : w.start+n]
	h := format.BatchHeader{Synced: seg.Synced.Load(), Applied: a, Revision: w.last.Main}
	if err := seg.WriteBatch(&h, b, w.pending.Sparse, w.pendingMetas); err != nil {
		err = vfs.MarkShortage(fmt.Errorf("history: write %s at offset %d: %w",
			seg.Path, seg.End, err))
		if kv.Shortage(err) {
			return err // the next try writes to the same place
		}
		return l.end.fail(err)
	}
	if !w.inSeg {
		seg.Memory.Chunks = append(seg.Memory.Chunks,
			growing.Chunk{Start: seg.End - h.Length, Buf: w.buf[w.start:]})
		w.inSeg = true
	}
	w.applied = a
	w.start += n
	w.dropLargeBuffer()
	l.sizes.appended.Add(int64(n))
	metas := w.pendingMetas
	w.clearBatch()
	l.cat.commitBatch(seg, w.last, w.applied)
	l.noteLeft()
	// Only now: a Sync that follows must make everything durable that the index has.
	for _, off := range metas {
		r, _, err := format.DecodeRecord(b[off:])
		if err != nil {
			return l.end.fail(format.Corrupt(seg.Path, int64(off), "%v", err))
		}
		m, err := format.DecodeMeta(r)
		if err != nil {
			return l.end.fail(format.Corrupt(seg.Path, int64(off), "%v", err))
		}
		l.cat.metas.Note(seg.Head.ID, &m)
	}
	return nil
}

// dropLargeBuffer drops the buffer of a batch that was just added to the open segment if it is
// large: otherwise the batches that follow, in segments to come, would keep it alive. The segment
// gets a copy of its part if much of the buffer is empty.
func (w *writer) dropLargeBuffer() {
	if len(w.buf) <= keptBuffer {
		return
	}
	m := &w.seg.Memory
	last := &m.Chunks[len(m.Chunks)-1]
	if rest := len(w.buf) - w.start; rest > len(w.buf)/4 {
		chunks := slices.Clone(m.Chunks) // views have the others
		chunks[len(chunks)-1].Buf = bytes.Clone(last.Buf[:len(last.Buf)-rest])
		m.Chunks = chunks
	}
	w.buf, w.start, w.pos, w.inSeg = nil, 0, 0, false
}

// clearBatch empties the current batch. Its changes of last and metas stay.
func (w *writer) clearBatch() {
	w.pos, w.began = w.start, false
	w.view = View{}
	clear(w.pending.Chunks)
	w.pending.Sparse, w.pendingMetas = reuse(w.pending.Sparse), reuse(w.pendingMetas)
	w.metas.Commit()
}

// reuse returns s without elements, or nil if its memory is large.
func reuse[T any](s []T) []T {
	if cap(s) > 1<<14 {
		return nil
	}
	return s[:0]
}

// WriterView returns a view that also shows the records of the current batch. It is the writer's
// and valid until the next AppendKV, Commit or WriterView.
func (l *Log) WriterView() *View {
	w := &l.w
	w.view = *l.cat.manifest.Load()
	w.view.patient = true
	if w.pending.Len() > 0 {
		w.pending.Chunks = append(w.pending.Chunks[:0], growing.Chunk{Buf: w.buf[w.start:w.pos]})
		w.view.pend = &w.pending
		w.view.last = w.last
	}
	return &w.view
}
