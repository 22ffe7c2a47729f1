package segfile

import (
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// windowBytes is how many bytes of a file a Window holds, unless one record is larger.
const windowBytes = 256 << 10

// Window is a copy of consecutive records of a file. Its buffers are used again by the next Fill.
type Window struct {
	buf   []byte
	base  int64  // offset of buf in the file
	path  string // of the file
	at    []int  // where the records in buf begin, in order
	taken int    // how many of them were taken
}

// FillWindow copies the records of s from number first on, at least one and none at or after limit,
// into w. It returns the number of the first record after them.
func (s *File) FillWindow(w *Window, first, limit int) (next int, err error) {
	from, err := s.recordAt(first)
	if err != nil {
		return first, err
	}
	n := first + 1
	places := append(w.at[:0], 0)
	for ; n < limit; n++ {
		off, err := s.recordAt(n)
		if err != nil {
			return first, err
		}
		if off-from > windowBytes {
			break
		}
		places = append(places, int(off-from))
	}
	// The last record that begins in the window may end after it, so its header says where the
	// window ends.
	last := places[len(places)-1]
	b, err := s.readBody(from+int64(last), format.RecordHeaderSize, nil)
	if err != nil {
		return first, err
	}
	if b, err = s.readBody(from, last+format.RecordSize(b), w.buf); err != nil {
		return first, err
	}
	for i, at := range places {
		if err := s.checkRevision(first+i, b[at:]); err != nil {
			return first, err
		}
	}
	if s.data != nil {
		b = append(w.buf[:0], b...)
	}
	w.buf, w.base, w.path, w.at, w.taken = b, from, s.path, places, 0
	return n, nil
}

// Left reports whether there is another record.
func (w *Window) Left() bool { return w.taken < len(w.at) }

// NextRecord returns the next record, whose revision must be above after. It aliases the window.
func (w *Window) NextRecord(after kv.Rev) (format.Record, error) {
	at := w.at[w.taken]
	b := w.buf[at:]
	r, size, err := format.DecodeRecord(b)
	if err == nil && !format.CheckRecord(b[:size]) {
		err = format.ErrRecordSum
	}
	if err == nil && (r.Kind != format.KindPut && r.Kind != format.KindTombstone ||
		!after.Less(r.Rev)) {
		err = format.ErrRecordKind
	}
	if err != nil {
		return format.Record{}, format.Corrupt(w.path, w.base+int64(at), "%v", err)
	}
	w.taken++
	return r, nil
}
