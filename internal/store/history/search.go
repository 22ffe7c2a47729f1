package history

import (
	"sort"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
)

// Stamp is the revision of a record, and when it was made in milliseconds since 1970, 0 if that is
// not known.
type Stamp struct {
	Rev  kv.Rev
	Time int64
}

// Search returns the stamp of the first record for which is holds, and that of the record before
// it; zero for none. is must hold for all records after one for which it holds. Search reads a few
// records of a few segments.
func (v *View) Search(is func(Stamp) bool) (before, first Stamp, err error) {
	return v.search(func(s *search) (i, n int) {
		i = sort.Search(len(s.spans), func(i int) bool { return s.holdsAtEnd(i, is) })
		if i == len(s.spans) {
			return i, 0
		}
		sp := s.number(i)
		return i, sp.first + sort.Search(sp.limit-sp.first, func(n int) bool {
			at := s.stamp(i, sp.first+n)
			return s.err != nil || is(at)
		})
	})
}

// Around returns the stamp of the first record at or above rev, and that of the record before it;
// zero for none. It reads a few records of one or two segments.
func (v *View) Around(rev kv.Rev) (before, first Stamp, err error) {
	return v.search(func(s *search) (i, n int) {
		i = sort.Search(len(s.spans), func(i int) bool { return !s.spans[i].last().Less(rev) })
		if i == len(s.spans) {
			return i, 0
		}
		sp := s.number(i)
		s.read(func() error {
			n, err = sp.ceil(rev)
			return err
		})
		return i, max(sp.first, min(n, sp.limit))
	})
}

// search returns the stamp of the first record from record n of span i on, and that of the record
// before it.
func (v *View) search(find func(s *search) (i, n int)) (before, first Stamp, err error) {
	s := &search{view: v, spans: v.spans(kv.Rev{})}
	if err := holdSources(s.spans); err != nil {
		return before, first, err
	}
	defer releaseSources(s.spans)
	s.numbered = make([]bool, len(s.spans))
	at, n := find(s)
	for i := at; i < len(s.spans) && first == (Stamp{}) && s.err == nil; i++ {
		sp := s.number(i)
		if i > at {
			n = sp.first
		}
		if n < sp.limit {
			first = s.stamp(i, n)
		}
		if i == at && n > sp.first {
			before = s.stamp(i, n-1)
		}
	}
	for i := at - 1; i >= 0 && before == (Stamp{}) && s.err == nil; i-- {
		before = s.end(i)
	}
	if s.err != nil {
		return Stamp{}, Stamp{}, s.err
	}
	return before, first, nil
}

// search is the state of a search for a record.
type search struct {
	view  *View
	spans []span
	// numbered says which spans know the numbers of their records.
	numbered []bool
	err      error // of the first read that failed
}

// read calls fn, which reads mapped memory, with the patience of the view.
func (s *search) read(fn func() error) {
	if s.err != nil {
		return
	}
	s.err = fn()
	for try := 1; s.err != nil && s.view.retryRead(try, s.err); try++ {
		s.err = fn()
	}
}

// number finds the records of a span.
func (s *search) number(i int) *span {
	sp := &s.spans[i]
	if !s.numbered[i] {
		s.read(sp.findRecords)
		s.numbered[i] = true
	}
	return sp
}

// end returns the stamp of the last record of a span, zero if it has none.
func (s *search) end(i int) Stamp {
	sp := s.number(i)
	if s.err != nil || sp.first >= sp.limit {
		return Stamp{}
	}
	return s.stamp(i, sp.limit-1)
}

// holdsAtEnd reports whether is holds at the end of a span, or after an error. A span without
// records has the end of the one before.
func (s *search) holdsAtEnd(i int, is func(Stamp) bool) bool {
	for ; i >= 0; i-- {
		if at := s.end(i); s.err != nil || at != (Stamp{}) {
			return s.err != nil || is(at)
		}
	}
	return false
}

// stamp reads the stamp of record n of a span.
func (s *search) stamp(i, n int) (at Stamp) {
	src := s.spans[i].src
	if src.mem != nil {
		b := src.mem.At(n)
		return Stamp{format.RecordRev(b), format.RecordTime(b)}
	}
	s.read(func() error {
		return segfile.Guard(func(a *segfile.Access) (err error) {
			a.Borrow(src.file)
			at.Rev, at.Time, err = src.file.Stamp(n)
			return err
		})
	})
	return at
}

// last returns the last revision of the source of a span, or one after it.
func (s *span) last() kv.Rev {
	if s.seg != nil {
		return s.seg.last
	}
	return format.RecordRev(s.mem.At(s.mem.Len() - 1))
}

// ceil returns the number of the first record at or above rev in the source of a span that was
// taken.
func (s *span) ceil(rev kv.Rev) (n int, err error) {
	if s.src.mem != nil {
		return s.src.mem.Ceil(rev), nil
	}
	err = segfile.Guard(func(a *segfile.Access) error {
		a.Borrow(s.src.file)
		n, err = s.src.file.Ceil(rev)
		return err
	})
	return n, err
}
