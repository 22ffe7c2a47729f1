package growing

import (
	"context"
	"hash/crc32"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// copyWrite is how many bytes are written between two checks of the context.
const copyWrite = 1 << 20

// Copy is a segment as it was at some moment, to be written as a sealed segment.
type Copy struct {
	seg    *Segment
	memory Memory
	foot   format.Footer
	metas  []uint32
}

// Copy returns the segment up to end, with the copy of Memory that was made then. It reads every
// batch. Other goroutines may append batches concurrently.
func (s *Segment) Copy(memory Memory, end uint32) (*Copy, error) {
	c := &Copy{seg: s, memory: memory, foot: format.Footer{
		Sparse:  memory.Sorted,
		FirstID: s.Head.ID,
		LastID:  s.Head.ID,
		BodyEnd: end,
		Records: uint32(memory.Len()),
		Mains:   uint32(len(memory.Mains)),
		BodySum: s.Head.Sum,
		Before:  s.before,
		After:   s.before,
	}}
	at := uint32(format.HeaderSize)
	for piece := range c.committed() {
		for b := piece.Buf; len(b) > 0; {
			h, ok := format.DecodeBatchHeader(b, int64(len(b)))
			if !ok || piece.Start > at || h.Prev != c.foot.After || !h.Check(b, s.Head.Sum) {
				return nil, format.Corrupt(s.Path, int64(at), "the batch is damaged in memory")
			}
			if err := c.countBatch(&h, b, at); err != nil {
				return nil, format.Corrupt(s.Path, int64(at), "in memory: %v", err)
			}
			at, b = at+h.Length, b[h.Length:]
		}
	}
	if at != end {
		return nil, format.Corrupt(s.Path, int64(at),
			"the batches in memory end here and not at %d", end)
	}
	c.foot.Metas = uint32(len(c.metas))
	return c, nil
}

// countBatch counts b, the batch at offset at.
func (c *Copy) countBatch(h *format.BatchHeader, b []byte, at uint32) error {
	f := &c.foot
	err := format.WalkBatch(b, h, func(off int, r format.Record) error {
		if r.Kind == format.KindMeta || r.Kind == format.KindMetaDeletion {
			c.metas = append(c.metas, at+uint32(off))
			return nil
		}
		if f.First == (kv.Rev{}) {
			f.First = r.Rev
		}
		f.Last = r.Rev
		return nil
	})
	if err != nil {
		return err
	}
	f.Batches++
	f.BodySum = format.AddSum(f.BodySum, b)
	f.After, f.Revision, f.Applied = h.Sum, h.Revision, h.Applied
	f.Live += uint64(h.Length) - format.BatchHeaderSize
	return nil
}

// committed yields the batches as they are in memory, in pieces of many.
func (c *Copy) committed() func(yield func(Chunk) bool) {
	return func(yield func(Chunk) bool) {
		for i, p := range c.memory.Chunks {
			end := c.foot.BodyEnd
			if i+1 < len(c.memory.Chunks) {
				end = c.memory.Chunks[i+1].Start
			}
			if !yield(Chunk{Start: p.Start, Buf: p.Buf[:end-p.Start]}) {
				return
			}
		}
	}
}

// Name returns the name of the sealed segment.
func (c *Copy) Name() string {
	return format.SealedName(c.foot.FirstID, c.foot.LastID, c.foot.Generation)
}

// Size returns the size of the sealed segment.
func (c *Copy) Size() int64 { return c.foot.FileSize() }

// Write writes the sealed segment to file, which is empty. It ends early with ctx's error.
func (c *Copy) Write(ctx context.Context, file vfs.File) error {
	head, foot := c.seg.Head, &c.foot
	end := c.memory.Encode(nil)
	for _, off := range c.metas {
		end = format.LE.AppendUint32(end, off)
	}
	foot.TableSum = crc32.Update(head.Sum, format.Castagnoli, end)
	end = append(end, make([]byte,
		foot.FileSize()-format.FooterSize-int64(foot.BodyEnd)-int64(len(end)))...)
	end = append(end, foot.Encode(head.Sum)...)

	if err := file.Preallocate(foot.FileSize()); err != nil {
		return err
	}
	put := func(b []byte, off int64) error {
		for len(b) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(len(b), copyWrite)
			if _, err := file.WriteAt(b[:n], off); err != nil {
				return err
			}
			b, off = b[n:], off+int64(n)
		}
		return nil
	}
	if err := put(head.Encode(), 0); err != nil {
		return err
	}
	for piece := range c.committed() {
		if err := put(piece.Buf, int64(piece.Start)); err != nil {
			return err
		}
	}
	return put(end, int64(foot.BodyEnd))
}
