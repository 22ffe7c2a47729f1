package history

import (
	"vigil/kv"
)

// scanWindow is how many bytes of a sealed segment a Scanner copies at a time, unless one record is
// larger.
const scanWindow = 256 << 10

// span is a run of records of one source.
type span struct {
	seg  *segment
	mem  *memory // instead of seg
	from kv.Rev
	// With numbered set it is the records [first, limit) instead.
	numbered     bool
	first, limit int
}

func (s *span) source() *source {
	if s.seg != nil {
		return s.seg.src.Load()
	}
	return &source{mem: s.mem}
}

// bytes returns about how many bytes the source has.
func (s *span) bytes(v *View) int64 {
	if s.seg != nil {
		return s.seg.size.Load()
	}
	if s.mem == &v.tail {
		return int64(v.end)
	}
	return int64(len(s.mem.chunks[0].buf))
}

// Scanner walks over records in the order of their revisions, with a bounded buffer. It is not safe
// for concurrent use.
//
//	s := v.Scan(from)
//	defer s.Close()
//	for s.Next() {
//		... s.Rev(), s.Tombstone(), s.Data()
//	}
//	if err := s.Err(); err != nil {
type Scanner struct {
	spans []span // that are still to come
	cur   *source
	next  int // number of the next record of cur to load
	limit int

	window []byte // copy of a piece of a sealed segment
	base   int64  // offset of the window in the file
	at     []int  // where the records in the window begin, in order
	taken  int    // how many of them were taken
	rec    record
	last   kv.Rev
	err    error
}

// Next goes to the next record. It returns false at the end or on an error.
func (s *Scanner) Next() bool {
	for s.err == nil {
		switch {
		case s.taken < len(s.at):
			s.err = s.fromWindow()
			return s.err == nil
		case s.cur == nil:
			if len(s.spans) == 0 {
				s.rec = record{}
				return false
			}
			s.begin(&s.spans[0])
			s.spans = s.spans[1:]
		case s.next >= s.limit:
			s.cur = nil
		case s.cur.mem != nil:
			b := s.cur.mem.at(s.next)
			s.next++
			s.rec, _, s.err = decodeRecord(b)
			s.last = s.rec.rev
			return s.err == nil
		default:
			s.err = s.fill(s.cur.file)
		}
	}
	s.rec = record{}
	return false
}

// begin starts with a span. A sealed file stays referenced by the pointer only: each fill takes and
// gives back its own reference, so that a slow scan pins no file.
func (s *Scanner) begin(sp *span) {
	s.cur = sp.source()
	if sp.numbered {
		s.next, s.limit = sp.first, sp.limit
		return
	}
	if s.cur.mem != nil {
		s.next, s.limit = s.cur.mem.ceil(sp.from), s.cur.mem.len()
		return
	}
	s.err = s.guard(s.cur.file, func(f *sealed) error {
		s.next, s.limit = f.table.ceil(sp.from), f.table.len()
		return nil
	})
}

func (s *Scanner) guard(f *sealed, read func(*sealed) error) (err error) {
	var a access
	a.begin()
	defer func() { err = a.end(recover(), err) }()
	if err := a.to(f); err != nil {
		return err
	}
	return read(f)
}

// fill copies the next records into the window.
func (s *Scanner) fill(f *sealed) error {
	return s.guard(f, func(f *sealed) error {
		from := int64(f.table.offset(s.next))
		end := int64(f.foot.bodyEnd)
		n := s.next + 1
		s.at = append(s.at[:0], 0)
		for ; n < s.limit; n++ {
			off := int64(f.table.offset(n))
			if off <= from || off > end {
				return corrupt(f.path, int64(f.foot.bodyEnd), "the offset tables are not in order")
			}
			if off-from > scanWindow {
				break
			}
			s.at = append(s.at, int(off-from))
		}
		// The last record that begins in the window may end behind it, so its header says where
		// the window ends.
		b, err := f.read(from+int64(s.at[len(s.at)-1]), recordHeaderSize, nil)
		if err != nil {
			return err
		}
		size := s.at[len(s.at)-1] + recordSize(b)
		if b, err = f.read(from, size, s.window); err != nil {
			return err
		}
		if f.data != nil {
			b = append(s.window[:0], b...)
		}
		s.window, s.base, s.taken, s.next = b, from, 0, n
		return nil
	})
}

// fromWindow takes the next record out of the window.
func (s *Scanner) fromWindow() error {
	at := s.at[s.taken]
	b := s.window[at:]
	r, size, err := decodeRecord(b)
	if err == nil && !checkRecord(b[:size]) {
		err = errRecordSum
	}
	if err == nil && (r.kind != kindPut && r.kind != kindTombstone || !s.last.Less(r.rev)) {
		err = errRecordKind
	}
	if err != nil {
		return corrupt(s.cur.file.path, s.base+int64(at), "%v", err)
	}
	s.rec, s.last = r, r.rev
	s.taken++
	return nil
}

// Rev returns the revision of the current record.
func (s *Scanner) Rev() kv.Rev { return s.rec.rev }

// Tombstone says whether the current record is a deletion.
func (s *Scanner) Tombstone() bool { return s.rec.kind == kindTombstone }

// Data returns the encoded record. It is valid until the next Next or Close and must not be
// modified.
func (s *Scanner) Data() []byte { return s.rec.data }

// Err returns what ended the scan early, nil at its proper end.
func (s *Scanner) Err() error { return s.err }

// Close gives back what the scanner holds.
func (s *Scanner) Close() { *s = Scanner{err: s.err} }
