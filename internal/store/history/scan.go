package history

import (
	"sync"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
)

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
	// held is set if the scanner holds its files. Then the fields from spans to limit are guarded
	// by mu, for ReleaseMemory.
	held  bool
	mu    sync.Mutex
	spans []span // the remaining spans
	span  span   // the present span
	cur   *source
	next  int // number of the next record of cur to load
	limit int

	window segfile.Window // of a sealed segment
	rec    format.Record
	last   kv.Rev
	err    error
}

// Scan returns a Scanner over the records at and above from.
func (v *View) Scan(from kv.Rev) *Scanner { return &Scanner{spans: v.spans(from)} }

// Next goes to the next record. It returns false at the end or on an error.
func (s *Scanner) Next() bool {
	for s.err == nil {
		if s.window.Left() {
			rec, err := s.window.NextRecord(s.last)
			if err != nil {
				s.err = err
				return false
			}
			s.rec, s.last = rec, rec.Rev
			return true
		}
		if found, more := s.stepOn(); found || !more {
			return found && s.err == nil
		}
	}
	s.rec = format.Record{}
	return false
}

// stepOn makes a step towards the next record: to the next span, or to the next window. found is
// set if it reached a record, more if there may be one.
func (s *Scanner) stepOn() (found, more bool) {
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
		s.err = s.nextSpan()
	case s.next >= s.limit:
		s.span.releaseSource()
		s.cur = nil
	case s.cur.mem != nil:
		b := s.cur.mem.At(s.next)
		s.next++
		s.rec, _, s.err = format.DecodeRecord(b)
		s.last = s.rec.Rev
		return true, true
	default:
		s.err = segfile.Guard(s.fillWindow)
	}
	return false, true
}

// nextSpan goes to the next span. A sealed file stays referenced by the pointer only, unless the
// span holds it: each fill takes and releases its own reference, so that a slow scan pins no file.
func (s *Scanner) nextSpan() error {
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
	return segfile.Guard(s.findPlace)
}

// findPlace finds where the remaining records of the span are now.
func (s *Scanner) findPlace(a *segfile.Access) error {
	from := s.span.from
	if !s.last.Less(from) {
		from = after(s.last)
	}
	src, err := s.span.seg.acquire(a)
	if err != nil {
		return err
	}
	s.cur = src
	s.next, s.limit, err = s.span.seg.findBounds(src, from)
	return err
}

// fillWindow copies the next records into the window.
func (s *Scanner) fillWindow(a *segfile.Access) (err error) {
	if a.To(s.cur.file) != nil {
		// The file was replaced, or the log is closed.
		if err := s.findPlace(a); err != nil || s.cur.mem != nil || s.next >= s.limit {
			return err
		}
	}
	s.next, err = s.cur.file.FillWindow(&s.window, s.next, s.limit)
	return err
}

// Rev returns the revision of the current record.
func (s *Scanner) Rev() kv.Rev { return s.rec.Rev }

// Stamp returns the revision of the current record and its time.
func (s *Scanner) Stamp() Stamp { return Stamp{s.rec.Rev, s.rec.Time} }

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
	s.span.releaseSource()
	for i := range s.spans {
		s.spans[i].releaseSource()
	}
	s.span, s.spans, s.cur = span{}, nil, nil
	s.window, s.rec = segfile.Window{}, format.Record{}
}
