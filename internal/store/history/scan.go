package history

import (
	"sync"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// scanWindow is how many bytes of a sealed segment a Scanner copies at a time, unless one record is
// larger.
const scanWindow = 256 << 10

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
	// held is set if the scanner holds its files. Then the fields from spans to limit are guarded by mu,
	// for ReleaseMemory.
	held  bool
	mu    sync.Mutex
	spans []span // the remaining ones
	span  span   // the present one
	cur   *source
	next  int // number of the next record of cur to load
	limit int

	window []byte // copy of a piece of a sealed segment
	base   int64  // offset of the window in the file
	path   string // of the file
	at     []int  // where the records in the window begin, in order
	taken  int    // how many of them were taken
	rec    format.Record
	last   kv.Rev
	err    error
}

// Scan returns a Scanner over the records at and above from.
func (v *View) Scan(from kv.Rev) *Scanner { return &Scanner{spans: v.spans(from)} }

// Next goes to the next record. It returns false at the end or on an error.
func (s *Scanner) Next() bool {
	for s.err == nil {
		if s.taken < len(s.at) {
			s.err = s.fromWindow()
			return s.err == nil
		}
		if found, more := s.step(); found || !more {
			return found && s.err == nil
		}
	}
	s.rec = format.Record{}
	return false
}

// step makes a step towards the next record: to the next span, or to the next window. found is set if it
// reached a record, more if there may be one.
func (s *Scanner) step() (found, more bool) {
	if s.held {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	switch {
	case s.cur == nil:
		if len(s.spans) == 0 {
			s.rec = format.Record{}
			return false, false
		}
		s.err = s.begin()
	case s.next >= s.limit:
		s.span.letGo()
		s.cur = nil
	case s.cur.mem != nil:
		b := s.cur.mem.at(s.next)
		s.next++
		s.rec, _, s.err = format.DecodeRecord(b)
		s.last = s.rec.Rev
		return true, true
	default:
		s.err = guard(s.fill)
	}
	return false, true
}

// begin goes to the next span. A sealed file stays referenced by the pointer only, unless the span
// holds it: each fill takes and releases its own reference, so that a slow scan pins no file.
func (s *Scanner) begin() error {
	s.span, s.spans = s.spans[0], s.spans[1:]
	sp := &s.span
	if sp.src != nil {
		s.cur, s.next, s.limit = sp.src, sp.first, sp.limit
		return nil
	}
	if sp.mem != nil {
		s.cur = &source{mem: sp.mem}
		s.next, s.limit = sp.mem.Ceil(sp.from), sp.mem.Len()
		return nil
	}
	return guard(s.find)
}

// find looks for the records of the span that are still to come where they are now.
func (s *Scanner) find(a *access) error {
	from := s.span.from
	if !s.last.Less(from) {
		from = after(s.last)
	}
	src, err := s.span.seg.acquire(a)
	if err != nil {
		return err
	}
	s.cur = src
	s.next, s.limit, err = s.span.seg.bounds(src, from)
	return err
}

// fill copies the next records into the window.
func (s *Scanner) fill(a *access) error {
	if a.to(s.cur.file) != nil {
		// The file was replaced, or the log is closed.
		if err := s.find(a); err != nil || s.cur.mem != nil || s.next >= s.limit {
			return err
		}
	}
	f := s.cur.file
	from, err := f.recordAt(s.next)
	if err != nil {
		return err
	}
	n := s.next + 1
	s.at = append(s.at[:0], 0)
	for ; n < s.limit; n++ {
		off, err := f.recordAt(n)
		if err != nil {
			return err
		}
		if off-from > scanWindow {
			break
		}
		s.at = append(s.at, int(off-from))
	}
	// The last record that begins in the window may end after it, so its header says where the
	// window ends.
	b, err := f.read(from+int64(s.at[len(s.at)-1]), format.RecordHeaderSize, nil)
	if err != nil {
		return err
	}
	size := s.at[len(s.at)-1] + format.RecordSize(b)
	if b, err = f.read(from, size, s.window); err != nil {
		return err
	}
	for i, at := range s.at {
		if err := f.expect(s.next+i, b[at:]); err != nil {
			return err
		}
	}
	if f.data != nil {
		b = append(s.window[:0], b...)
	}
	s.window, s.base, s.path, s.taken, s.next = b, from, f.path, 0, n
	return nil
}

// fromWindow takes the next record out of the window.
func (s *Scanner) fromWindow() error {
	at := s.at[s.taken]
	b := s.window[at:]
	r, size, err := format.DecodeRecord(b)
	if err == nil && !format.CheckRecord(b[:size]) {
		err = format.ErrRecordSum
	}
	if err == nil && (r.Kind != format.KindPut && r.Kind != format.KindTombstone || !s.last.Less(r.Rev)) {
		err = format.ErrRecordKind
	}
	if err != nil {
		return format.Corrupt(s.path, s.base+int64(at), "%v", err)
	}
	s.rec, s.last = r, r.Rev
	s.taken++
	return nil
}

// Rev returns the revision of the current record.
func (s *Scanner) Rev() kv.Rev { return s.rec.Rev }

// Tombstone says whether the current record is a deletion.
func (s *Scanner) Tombstone() bool { return s.rec.Kind == format.KindTombstone }

// Data returns the encoded record. It is valid until the next Next or Close and must not be
// modified.
func (s *Scanner) Data() []byte { return s.rec.Data }

// Err returns the error that ended the scan, nil at its end.
func (s *Scanner) Err() error { return s.err }

// Close releases the files and memory of the scanner.
func (s *Scanner) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.span.letGo()
	for i := range s.spans {
		s.spans[i].letGo()
	}
	s.span, s.spans, s.cur = span{}, nil, nil
	s.window, s.at, s.taken, s.rec = nil, nil, 0, format.Record{}
}
