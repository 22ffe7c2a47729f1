package segfile

import (
	"context"
	"errors"
	"hash/crc32"

	"vigil/internal/store/history/format"
)

// Check reads all parts of the file and compares them with their checksums and with each other. Its
// error is a CorruptError, the error of a read, ctx's or ErrClosed.
func (s *File) Check(ctx context.Context) (err error) {
	var a Access
	a.Begin()
	defer func() { err = a.End(recover(), err) }()
	if err := a.To(s); err != nil {
		return err
	}
	if err := s.checkEnds(); err != nil {
		return err
	}
	var (
		buf     []byte
		sum     = s.seed
		records int
		metas   int
		batches uint32
		prev    = s.foot.Before
	)
	for off := int64(format.HeaderSize); off < int64(s.foot.BodyEnd); {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := s.readBody(off, format.BatchHeaderSize, nil)
		if err != nil {
			return err
		}
		h, ok := format.DecodeBatchHeader(b, int64(s.foot.BodyEnd)-off)
		if !ok {
			return format.Corrupt(s.path, off, "there is no batch")
		}
		if b, err = s.readBody(off, int(h.Length), buf); err != nil {
			return err
		}
		if s.data != nil {
			b = append(buf[:0], b...)
		}
		buf = b
		if !h.Check(b, s.seed) {
			return &format.CorruptError{File: s.path, Offset: off, Length: int64(h.Length),
				Reason: "the checksum of the batch does not match"}
		}
		if h.Prev != prev && s.foot.Generation == 0 {
			return format.Corrupt(s.path, off, "the batch does not continue the one before it")
		}
		prev = h.Sum
		batches++
		err = format.WalkBatch(b, &h, func(at int, r format.Record) error {
			want := uint32(off) + uint32(at)
			if r.Kind == format.KindMeta || r.Kind == format.KindMetaDeletion {
				if metas == int(s.foot.Metas) || format.LE.Uint32(s.metas[4*metas:]) != want {
					return errors.New("the table of meta records does not have it")
				}
				metas++
				return nil
			}
			i := s.table.Find(r.Rev)
			if i != records || s.table.Offset(i) != want {
				return errors.New("the offset table does not have it")
			}
			records++
			return nil
		})
		if err != nil {
			return format.Corrupt(s.path, off, "%v", err)
		}
		sum = format.AddSum(sum, b)
		off += int64(h.Length)
	}
	f := &s.foot
	if sum != f.BodySum || records != int(f.Records) || metas != int(f.Metas) ||
		batches != f.Batches || prev != f.After && f.Generation == 0 {
		return format.Corrupt(s.path, int64(f.BodyEnd), "the footer does not describe the batches")
	}
	return nil
}

// checkEnds checks the header before the batches, and the tables and footer after them.
func (s *File) checkEnds() error {
	f := &s.foot
	size := f.FileSize()
	b := s.data
	from := int64(f.BodyEnd)
	ends := make([]byte, format.HeaderSize+size-from)
	if b != nil {
		copy(ends, b[:format.HeaderSize])
		copy(ends[format.HeaderSize:], b[from:size])
	} else {
		if err := ReadFull(s.file, s.path, ends[:format.HeaderSize], 0); err != nil {
			return err
		}
		if err := ReadFull(s.file, s.path, ends[format.HeaderSize:], from); err != nil {
			return err
		}
	}
	if h, err := format.DecodeHeader(ends); err != nil || h.Sum != s.seed {
		return format.Corrupt(s.path, 0, "%v", format.ErrHeaderSum)
	}
	ends = ends[format.HeaderSize:]
	tables := ends[:f.TableSize()]
	if crc32.Update(s.seed, format.Castagnoli, tables) != f.TableSum {
		return format.Corrupt(s.path, from, "the checksum of the offset tables does not match")
	}
	for _, c := range ends[len(tables) : len(ends)-format.FooterSize] {
		if c != 0 {
			return format.Corrupt(s.path, from+int64(len(tables)), "the padding is not zeros")
		}
	}
	if got, err := format.DecodeFooter(ends[len(ends)-format.FooterSize:], s.seed,
		size); err != nil || got != *f {
		return format.Corrupt(s.path, size-format.FooterSize, "%v", format.ErrFooterSum)
	}
	return nil
}
