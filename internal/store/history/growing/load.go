package growing

import (
	"errors"
	"fmt"
	"slices"

	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// Open takes over file, whose path is path, and reads its header. It closes the file if it fails.
func Open(file vfs.File, path string, id uint64, member *format.Identity) (*Segment, error) {
	s := &Segment{Path: path, File: file, End: format.HeaderSize}
	err := s.readHeader(id, member)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	s.bodySum = s.Head.Sum
	s.Synced.Store(format.HeaderSize)
	return s, nil
}

func (s *Segment) readHeader(id uint64, member *format.Identity) (err error) {
	if s.Head, err = segfile.ReadHeader(s.File, s.Path); err != nil {
		return err
	}
	if err = member.Check(&s.Head, s.Path); err != nil {
		return err
	}
	if s.Head.ID != id {
		return format.Corrupt(s.Path, 0, "the file is %s by its content",
			format.SegmentName(s.Head.ID))
	}
	s.Alloc, err = s.File.Size()
	return err
}

// TrustChain takes the checksum of the batch before the segment from its first batch, if that has a
// header. It returns false otherwise.
func (s *Segment) TrustChain(c *format.Chain) bool {
	b := make([]byte, format.BatchHeaderSize)
	if segfile.ReadFull(s.File, s.Path, b, format.HeaderSize) != nil {
		return false
	}
	h, ok := format.DecodeBatchHeader(b, s.Alloc-format.HeaderSize)
	if ok {
		c.Sum = h.Prev
	}
	return ok
}

// Load reads the batches that continue the chain c, up to the first that is not whole, and advances
// c. It calls meta with every meta record; meta may keep it.
func (s *Segment) Load(c *format.Chain, meta func(format.Meta)) error {
	s.FollowChain(c)
	win := window{seg: s}
	defer win.dropRest()
	for {
		b, err := win.readBatch(int64(s.End))
		if err != nil || b == nil {
			return err
		}
		h, _ := format.DecodeBatchHeader(b, int64(len(b)))
		if h.Prev != s.after {
			return nil
		}
		start := s.End
		err = format.WalkBatch(b, &h, func(off int, rec format.Record) error {
			at := start + uint32(off)
			if rec.Kind == format.KindMeta || rec.Kind == format.KindMetaDeletion {
				m, err := format.DecodeMeta(rec)
				if err != nil {
					return err
				}
				m.Value = slices.Clone(m.Value)
				meta(m)
				s.metas = append(s.metas, at)
				return nil
			}
			if !c.Last.Less(rec.Rev) {
				return fmt.Errorf("revision %d/%d follows %d/%d", rec.Rev.Main, rec.Rev.Sub,
					c.Last.Main, c.Last.Sub)
			}
			c.Last = rec.Rev
			s.addRecord(rec.Rev, at)
			return nil
		})
		if err == nil && (h.Revision < c.Last.Main || h.Synced > start) {
			err = errors.New("the header of a batch contradicts the batches before it")
		}
		if err != nil {
			return format.Corrupt(s.Path, int64(start), "%v", err)
		}
		s.addBatch(&h, b)
		s.Synced.Store(max(s.Synced.Load(), h.Synced))
		c.Advance(s.Head.ID+1, c.Last, h.Revision, h.Applied, h.Sum)
	}
}

// window reads a segment batch by batch, in large pieces that become the chunks of its memory.
type window struct {
	seg *Segment
}

// readBatch returns the whole batch at off with a good checksum, nil if there is none.
func (w *window) readBatch(off int64) ([]byte, error) {
	head, err := w.readBytes(off, format.BatchHeaderSize)
	if err != nil || head == nil {
		return nil, err
	}
	h, ok := format.DecodeBatchHeader(head, w.seg.Alloc-off)
	if !ok || off+int64(h.Length) > format.MaxSegment {
		return nil, nil
	}
	b, err := w.readBytes(off, int64(h.Length))
	if err != nil || !h.Check(b, w.seg.Head.Sum) {
		return nil, err
	}
	return b, nil
}

// readBytes returns n bytes at off, nil if the file is shorter.
func (w *window) readBytes(off, n int64) ([]byte, error) {
	if off+n > w.seg.Alloc {
		return nil, nil
	}
	chunks := w.seg.Memory.Chunks
	if len(chunks) > 0 {
		c := chunks[len(chunks)-1]
		if from := off - int64(c.Start); from+n <= int64(len(c.Buf)) {
			return c.Buf[from : from+n], nil
		}
		if int64(c.Start) == off {
			// The batch is longer than a window: no record is in it yet.
			w.seg.Memory.Chunks = chunks[:len(chunks)-1]
		}
	}
	buf := make([]byte, min(max(n, ChunkBytes), w.seg.Alloc-off))
	if err := segfile.ReadFull(w.seg.File, w.seg.Path, buf, off); err != nil {
		return nil, err
	}
	w.seg.Memory.Chunks = append(w.seg.Memory.Chunks, Chunk{Start: uint32(off), Buf: buf})
	return buf[:n], nil
}

// dropRest drops the chunk that was read after the last good batch.
func (w *window) dropRest() {
	m := &w.seg.Memory
	if n := len(m.Chunks); n > 0 && m.Chunks[n-1].Start >= w.seg.End {
		m.Chunks = slices.Clip(m.Chunks[:n-1])
	}
}
