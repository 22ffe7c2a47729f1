package history

import (
	"slices"
	"sync"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// scanWindow is how many bytes of a sealed segment a Scanner copies at a time, unless one record is
// larger.
const scanWindow = 256 << 10

// span is a run of records of one source: of a segment, or of mem.
type span struct {
	seg  *segment
	mem  *memory
	open *segment // the segment that mem is the memory of, if it has one
	from kv.Rev   // those at or above
	// With src set, to which a file in it is held, it is the records [first, limit) of it instead.
	src          *source
	first, limit int
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

// take holds the files of all spans as they were at one moment. Reclaim drops a deletion once the
// segments before it have nothing left that it deletes: the file of one segment before a rewrite and
// that of another after the next rewrite would show what was deleted.
func take(spans []span) error {
	for {
		for i := range spans {
			if err := spans[i].take(); err != nil {
				letGo(spans)
				return err
			}
		}
		if !slices.ContainsFunc(spans, span.moved) {
			return nil
		}
		letGo(spans)
	}
}

// take holds the file of the span.
func (s *span) take() error {
	if s.mem != nil {
		s.src = &source{mem: s.mem}
		return nil
	}
	for {
		src := s.seg.source()
		if src.mem != nil || src.file.acquire() {
			s.src = src
			return nil
		}
		if s.seg.source() == src {
			return ErrClosed
		}
	}
}

// moved reports whether the segment has another source since take.
func (s span) moved() bool { return s.seg != nil && s.seg.source() != s.src }

// number finds the records of the span, which was taken.
func (s *span) number() error {
	if s.mem != nil {
		s.first, s.limit = s.mem.Ceil(s.from), s.mem.Len()
		return nil
	}
	return guard(func(a *access) (err error) {
		if s.src.file != nil {
			a.src, a.borrowed = s.src.file, true
		}
		s.first, s.limit, err = s.seg.bounds(s.src, s.from)
		return err
	})
}

// letGo gives back what take holds.
func (s *span) letGo() {
	if s.src != nil && s.src.file != nil {
		s.src.file.release()
	}
	s.src = nil
}

// letGo gives back what take holds.
func letGo(spans []span) {
	for i := range spans {
		spans[i].letGo()
	}
}

// bounds returns the numbers that the records of s at or above from have in src. Once s was merged
// there are others before and after them.
func (s *segment) bounds(src *source, from kv.Rev) (first, limit int, err error) {
	if from.Less(s.first) {
		from = s.first
	}
	if src.mem != nil {
		return src.mem.Ceil(from), src.mem.Ceil(after(s.last)), nil
	}
	if first, err = src.file.ceil(from); err != nil {
		return 0, 0, err
	}
	if limit, err = src.file.ceil(after(s.last)); err != nil {
		return 0, 0, err
	}
	return first, limit, nil
}

// after returns the least revision above rev.
func after(rev kv.Rev) kv.Rev { return kv.Rev{Main: rev.Main, Sub: rev.Sub + 1} }

// guard runs fn, which reads mapped memory.
func guard(fn func(*access) error) (err error) {
	var a access
	a.begin()
	defer func() { err = a.end(recover(), err) }()
	return fn(&a)
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
	// held is set if the scanner holds its files. Then the fields from spans to limit are guarded by mu,
	// for ReleaseMemory.
	held  bool
	mu    sync.Mutex
	spans []span // that are still to come
	span  span   // the one under way
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

// Hold returns a Scanner over the records at and above from that holds the files it will read, as
// they were at one moment of the call: what a compaction that comes later makes needless is still
// found. The space of files that are replaced meanwhile is not given back before Close.
func (v *View) Hold(from kv.Rev) (*Scanner, error) {
	s := &Scanner{spans: v.spans(from), held: true}
	if err := take(s.spans); err != nil {
		return nil, err
	}
	for i := range s.spans {
		if err := s.spans[i].number(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Twin returns another Scanner over the same records, which holds the same files and must be closed too.
// s must come from Hold and not have begun.
func (s *Scanner) Twin() *Scanner {
	t := &Scanner{spans: slices.Clone(s.spans), held: true}
	for _, sp := range t.spans {
		if sp.src != nil && sp.src.file != nil {
			sp.src.file.hold()
		}
	}
	return t
}

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

// step makes a step towards the next record: to the next span, or to the next window. found says that it
// has come to a record, and more that there may be one.
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

// ReleaseMemory releases the memory of segments that were sealed since Hold: their remaining records are read from
// their files, which it then holds. It reports whether some segments are still in memory. Any goroutine may call it,
// concurrently with the scan, so that a stalled scan keeps no memory for long.
func (s *Scanner) ReleaseMemory() (left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.spans {
		sp := &s.spans[i]
		if sp.src != nil && sp.src.mem != nil && !sp.switchToFile(sp.first) {
			left = true
		}
	}
	if s.cur != nil && s.cur.mem != nil {
		s.span.limit = s.limit
		if s.span.switchToFile(s.next) {
			s.cur, s.next, s.limit = s.span.src, s.span.first, s.span.limit
		} else {
			left = true
		}
	}
	return left
}

// switchToFile switches from memory to the file of the segment, for the records at and after number from. It returns
// false if there is no such file yet or any more.
func (s *span) switchToFile(from int) bool {
	seg := s.seg
	if seg == nil {
		seg = s.open
	}
	if seg == nil || from >= s.limit {
		return false
	}
	revOf := func(i int) kv.Rev {
		r, _, err := format.DecodeRecord(s.src.mem.at(i))
		if err != nil {
			return kv.Rev{}
		}
		return r.Rev
	}
	first, last := revOf(from), revOf(s.limit-1)
	moved := false
	_ = guard(func(a *access) error {
		src := seg.src.Load()
		if src == nil || src.file == nil || a.to(src.file) != nil {
			return nil
		}
		begin, err := src.file.ceil(first)
		if err != nil {
			return err
		}
		end, err := src.file.ceil(after(last))
		if err != nil || end-begin != s.limit-from {
			return err
		}
		src.file.hold()
		s.seg, s.mem, s.open = seg, nil, nil
		s.src, s.first, s.limit = src, begin, end
		moved = true
		return nil
	})
	return moved
}

// begin goes to the next span. A sealed file stays referenced by the pointer only, unless the span
// holds it: each fill takes and gives back its own reference, so that a slow scan pins no file.
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

// Err returns what ended the scan early, nil at its proper end.
func (s *Scanner) Err() error { return s.err }

// Close gives back what the scanner holds.
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
