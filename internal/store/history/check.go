package history

import (
	"context"
	"errors"
	"hash/crc32"
)

// eachMeta calls fn with every meta record in the order they were written. fn may keep the value.
func (s *sealed) eachMeta(fn func(off uint32, m Meta)) (err error) {
	var a access
	a.begin()
	defer func() { err = a.end(recover(), err) }()
	a.src, a.borrowed = s, true
	for i := 0; i < len(s.metas); i += 4 {
		off := int64(le.Uint32(s.metas[i:]))
		b, err := s.read(off, recordHeaderSize, nil)
		if err != nil {
			return err
		}
		if b, err = s.read(off, recordSize(b), nil); err != nil {
			return err
		}
		b = append([]byte(nil), b...)
		r, _, err := decodeRecord(b)
		if err == nil && !checkRecord(b) {
			err = errRecordSum
		}
		var m Meta
		if err == nil {
			m, err = decodeMeta(r)
		}
		if err != nil {
			return corrupt(s.path, off, "%v", err)
		}
		fn(uint32(off), m)
	}
	return nil
}

// Check reads every byte of the sealed segments and returns the first thing that is not as it was
// written, as a CorruptError, or ctx's error. Reads and writes go on beside it.
func (l *Log) Check(ctx context.Context) error {
	for _, seg := range l.cat.segments() {
		for {
			src := seg.source()
			if src.file == nil {
				break
			}
			err := src.file.check(ctx)
			if errors.Is(err, ErrClosed) && seg.source() != src {
				continue // it was rewritten
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// check compares all that is in the file with its checksums and with each other.
func (s *sealed) check(ctx context.Context) (err error) {
	var a access
	a.begin()
	defer func() { err = a.end(recover(), err) }()
	if err := a.to(s); err != nil {
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
		prev    = s.foot.before
	)
	for off := int64(headerSize); off < int64(s.foot.bodyEnd); {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := s.read(off, batchHeaderSize, nil)
		if err != nil {
			return err
		}
		h, ok := decodeBatchHeader(b, int64(s.foot.bodyEnd)-off)
		if !ok {
			return corrupt(s.path, off, "there is no batch")
		}
		if b, err = s.read(off, int(h.length), buf); err != nil {
			return err
		}
		if s.data != nil {
			b = append(buf[:0], b...)
		}
		buf = b
		if !h.check(b, s.seed) {
			return corrupt(s.path, off, "the checksum of the batch does not match")
		}
		if h.prev != prev && s.foot.generation == 0 {
			return corrupt(s.path, off, "the batch does not continue the one before it")
		}
		prev = h.sum
		batches++
		err = walkBatch(b, &h, func(at int, r record) error {
			want := uint32(off) + uint32(at)
			if r.kind == kindMeta || r.kind == kindMetaDeletion {
				if metas == int(s.foot.metas) || le.Uint32(s.metas[4*metas:]) != want {
					return errors.New("the table of meta records does not have it")
				}
				metas++
				return nil
			}
			i := s.table.find(r.rev)
			if i != records || s.table.offset(i) != want {
				return errors.New("the offset table does not have it")
			}
			records++
			return nil
		})
		if err != nil {
			return corrupt(s.path, off, "%v", err)
		}
		sum = addSum(sum, b)
		off += int64(h.length)
	}
	f := &s.foot
	if sum != f.bodySum || records != int(f.records) || metas != int(f.metas) || batches != f.batches || prev != f.after && f.generation == 0 {
		return corrupt(s.path, int64(f.bodyEnd), "the footer is not that of the batches")
	}
	return nil
}

// checkEnds compares what is in front of the batches and behind them.
func (s *sealed) checkEnds() error {
	f := &s.foot
	size := f.fileSize()
	b := s.data
	from := int64(f.bodyEnd)
	ends := make([]byte, headerSize+size-from)
	if b != nil {
		copy(ends, b[:headerSize])
		copy(ends[headerSize:], b[from:size])
	} else {
		if err := readFull(s.file, s.path, ends[:headerSize], 0); err != nil {
			return err
		}
		if err := readFull(s.file, s.path, ends[headerSize:], from); err != nil {
			return err
		}
	}
	if h, err := decodeHeader(ends); err != nil || h.sum != s.seed {
		return corrupt(s.path, 0, "%v", errHeaderSum)
	}
	ends = ends[headerSize:]
	tables := ends[:f.tableSize()]
	if crc32.Update(s.seed, castagnoli, tables) != f.tableSum {
		return corrupt(s.path, from, "the checksum of the offset tables does not match")
	}
	for _, c := range ends[len(tables) : len(ends)-footerSize] {
		if c != 0 {
			return corrupt(s.path, from+int64(len(tables)), "the padding is not zeros")
		}
	}
	if got, err := decodeFooter(ends[len(ends)-footerSize:], s.seed, size); err != nil || got != *f {
		return corrupt(s.path, size-footerSize, "%v", errFooterSum)
	}
	return nil
}
