package history

import (
	"slices"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
)

// Hold returns a Scanner over the records at and above from that holds the files it will read, as
// they were at one moment of the call: it also finds records that a later compaction makes
// needless. Until Close, the space of files that are replaced is not freed.
func (v *View) Hold(from kv.Rev) (*Scanner, error) {
	s := &Scanner{spans: v.spans(from), held: true}
	if err := holdSources(s.spans); err != nil {
		return nil, err
	}
	for i := range s.spans {
		if err := s.spans[i].findRecords(); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Twin returns another Scanner over the same records, which holds the same files and must be closed
// too. s must be from Hold, and Next must not have been called.
func (s *Scanner) Twin() *Scanner {
	t := &Scanner{spans: slices.Clone(s.spans), held: true}
	for _, sp := range t.spans {
		if sp.src != nil && sp.src.file != nil {
			sp.src.file.Hold()
		}
	}
	return t
}

// ReleaseMemory releases the memory of segments that were sealed since Hold: their remaining
// records are read from their files, which it then holds. It reports whether some segments are
// still in memory. Any goroutine may call it, concurrently with the scan, so that a stalled scan
// keeps no memory for long.
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

// switchToFile switches from memory to the file of the segment, for the records at and after number
// from. It returns false if there is no such file yet or any more.
func (s *span) switchToFile(from int) bool {
	seg := s.seg
	if seg == nil {
		seg = s.open
	}
	if seg == nil || from >= s.limit {
		return false
	}
	revOf := func(i int) kv.Rev {
		r, _, err := format.DecodeRecord(s.src.mem.At(i))
		if err != nil {
			return kv.Rev{}
		}
		return r.Rev
	}
	first, last := revOf(from), revOf(s.limit-1)
	moved := false
	_ = segfile.Guard(func(a *segfile.Access) error {
		src := seg.src.Load()
		if src == nil || src.file == nil || a.To(src.file) != nil {
			return nil
		}
		begin, err := src.file.Ceil(first)
		if err != nil {
			return err
		}
		end, err := src.file.Ceil(after(last))
		if err != nil || end-begin != s.limit-from {
			return err
		}
		src.file.Hold()
		s.seg, s.mem, s.open = seg, nil, nil
		s.src, s.first, s.limit = src, begin, end
		moved = true
		return nil
	})
	return moved
}
