package history

import (
	"errors"
	"fmt"
	"slices"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
)

// load reads the batches of a segment that continue the chain, up to the first that is not whole.
func (r *recovery) load(seg *openSegment) error {
	w := &r.l.w
	seg.before, seg.after = r.chain, r.chain
	seg.revision, seg.applied = r.revision, w.applied
	win := window{seg: seg}
	defer win.clip()
	for {
		b, err := win.batch(int64(seg.end))
		if err != nil || b == nil {
			return err
		}
		h, _ := format.DecodeBatchHeader(b, int64(len(b)))
		if h.Prev != seg.after {
			return nil
		}
		start := seg.end
		err = format.WalkBatch(b, &h, func(off int, rec format.Record) error {
			at := start + uint32(off)
			if rec.Kind == format.KindMeta || rec.Kind == format.KindMetaDeletion {
				m, err := format.DecodeMeta(rec)
				if err != nil {
					return err
				}
				m.Value = slices.Clone(m.Value)
				w.metas.apply(m)
				r.l.cat.metas.Note(seg.head.ID, &m)
				seg.metas = append(seg.metas, at)
				return nil
			}
			if !w.last.Less(rec.Rev) {
				return fmt.Errorf("revision %d/%d follows %d/%d", rec.Rev.Main, rec.Rev.Sub, w.last.Main, w.last.Sub)
			}
			if seg.first == (kv.Rev{}) {
				seg.first = rec.Rev
			}
			seg.last, w.last = rec.Rev, rec.Rev
			seg.mem.Append(rec.Rev, at)
			return nil
		})
		if err == nil && (h.Revision < w.last.Main || h.Synced > start) {
			err = errors.New("the header of a batch contradicts what is before it")
		}
		if err != nil {
			return format.Corrupt(seg.path, int64(start), "%v", err)
		}
		seg.note(&h, b)
		seg.synced.Store(max(seg.synced.Load(), h.Synced))
		r.advance(seg.head.ID+1, w.last, h.Revision, h.Applied, h.Sum)
	}
}

// window reads a segment batch by batch, in large pieces that become the chunks of its memory.
type window struct {
	seg *openSegment
}

// batch returns the whole batch at off with a good checksum, nil if there is none.
func (w *window) batch(off int64) ([]byte, error) {
	head, err := w.bytes(off, format.BatchHeaderSize)
	if err != nil || head == nil {
		return nil, err
	}
	h, ok := format.DecodeBatchHeader(head, w.seg.alloc-off)
	if !ok || off+int64(h.Length) > format.MaxSegment {
		return nil, nil
	}
	b, err := w.bytes(off, int64(h.Length))
	if err != nil || !h.Check(b, w.seg.head.Sum) {
		return nil, err
	}
	return b, nil
}

// bytes returns n bytes at off, nil if the file is shorter.
func (w *window) bytes(off, n int64) ([]byte, error) {
	if off+n > w.seg.alloc {
		return nil, nil
	}
	chunks := w.seg.mem.chunks
	if len(chunks) > 0 {
		c := chunks[len(chunks)-1]
		if from := off - int64(c.start); from+n <= int64(len(c.buf)) {
			return c.buf[from : from+n], nil
		}
		if int64(c.start) == off {
			// The batch is longer than a window: no record is in it yet.
			w.seg.mem.chunks = chunks[:len(chunks)-1]
		}
	}
	buf := make([]byte, min(max(n, chunkBytes), w.seg.alloc-off))
	if err := segfile.ReadFull(w.seg.file, w.seg.path, buf, off); err != nil {
		return nil, err
	}
	w.seg.mem.chunks = append(w.seg.mem.chunks, chunk{start: uint32(off), buf: buf})
	return buf[:n], nil
}

// clip drops the memory of what was read after the last good batch.
func (w *window) clip() {
	m := &w.seg.mem
	if n := len(m.chunks); n > 0 && m.chunks[n-1].start >= w.seg.end {
		m.chunks = slices.Clip(m.chunks[:n-1])
	}
}
