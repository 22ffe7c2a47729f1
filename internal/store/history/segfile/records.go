package segfile

import (
	"iter"
	"slices"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// EachMeta calls fn with every meta record, in the order they were written, and its offset. fn may
// keep the record.
func (s *File) EachMeta(fn func(off uint32, m format.Meta)) (err error) {
	var a Access
	a.Begin()
	defer func() { err = a.End(recover(), err) }()
	a.Borrow(s)
	for i := 0; i < len(s.metas); i += 4 {
		off := int64(format.LE.Uint32(s.metas[i:]))
		b, err := s.readBody(off, format.RecordHeaderSize, nil)
		if err != nil {
			return err
		}
		if b, err = s.readBody(off, format.RecordSize(b), nil); err != nil {
			return err
		}
		b = append([]byte(nil), b...)
		r, _, err := format.DecodeRecord(b)
		if err == nil && !format.CheckRecord(b) {
			err = format.ErrRecordSum
		}
		var m format.Meta
		if err == nil {
			m, err = format.DecodeMeta(r)
		}
		if err != nil {
			return format.Corrupt(s.path, off, "%v", err)
		}
		fn(uint32(off), m)
	}
	return nil
}

// Offsets yields the offset of every record in the order of the file, with its number, or -1 for a
// meta record. The tables are trusted: call CheckTables first.
func (s *File) Offsets() iter.Seq2[int, uint32] {
	return func(yield func(int, uint32) bool) {
		metas := s.metas
		for n := 0; n < s.table.Len() || len(metas) > 0; {
			off, meta := s.foot.BodyEnd, s.foot.BodyEnd
			if n < s.table.Len() {
				off = s.table.Offset(n)
			}
			if len(metas) > 0 {
				meta = format.LE.Uint32(metas)
			}
			number := n
			if meta < off {
				number, off, metas = -1, meta, metas[4:]
			} else {
				n++
			}
			if !yield(number, off) {
				return
			}
		}
	}
}

// Head returns the size and the kind of the record at off according to its header. It does not
// check the record's checksum.
func (s *File) Head(off uint32) (size int, kind format.Kind, err error) {
	b, err := s.readBody(int64(off), format.RecordHeaderSize, nil)
	if err != nil {
		return 0, 0, err
	}
	return format.RecordSize(b), format.RecordKind(b), nil
}

// AppendRecord appends the whole record of size bytes at off to dst, header included: the record
// with that number, or a meta record if number is -1. The copy was checked.
func (s *File) AppendRecord(dst []byte, number int, off uint32, size int) (out []byte,
	rev kv.Rev, err error) {
	if err := s.inBody(int64(off), size); err != nil {
		return dst, kv.Rev{}, err // before memory is allocated for a damaged size
	}
	from := len(dst)
	dst = slices.Grow(dst, size)
	b, err := s.readBody(int64(off), size, dst[from:from+size])
	if err != nil {
		return dst, kv.Rev{}, err
	}
	dst = append(dst, b...)
	r, n, err := format.DecodeRecord(dst[from:])
	if err == nil && (n != size || !format.CheckRecord(dst[from:])) {
		err = format.ErrRecordSum
	}
	key := number >= 0
	if err == nil && (key != (r.Kind == format.KindPut || r.Kind == format.KindTombstone) ||
		key && !s.table.Is(number, r.Rev)) {
		err = format.ErrRecordKind
	}
	if err != nil {
		return dst, kv.Rev{}, format.Corrupt(s.path, int64(off), "%v", err)
	}
	return dst, r.Rev, nil
}
