package history

import (
	"slices"
	"sort"

	"vigil/internal/kv"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
)

// span is a run of records of one source: of a segment, or of mem.
type span struct {
	seg  *segment
	mem  *growing.Memory
	open *segment // the segment whose memory is mem, if there is one
	from kv.Rev   // the least revision
	// With src set, the span is the records [first, limit) of it instead. If it is a file, it is
	// held.
	src          *source
	first, limit int
}

// countBytes returns about how many bytes the source has.
func (s *span) countBytes(v *View) int64 {
	if s.seg != nil {
		return s.seg.size.Load()
	}
	if s.mem == &v.tail {
		return int64(v.end)
	}
	return int64(len(s.mem.Chunks[0].Buf))
}

// holdSources holds the files of all spans as they were at one moment. Reclaim drops a deletion
// once the segments before it have no record that it deletes. So the file of one segment from
// before a rewrite, and the file of another from after the next rewrite, would show deleted
// records.
func holdSources(spans []span) error {
	for {
		for i := range spans {
			if err := spans[i].holdSource(); err != nil {
				releaseSources(spans)
				return err
			}
		}
		if !slices.ContainsFunc(spans, span.hasMoved) {
			return nil
		}
		releaseSources(spans)
	}
}

// holdSource holds the file of the span.
func (s *span) holdSource() error {
	if s.mem != nil {
		s.src = &source{mem: s.mem}
		return nil
	}
	for {
		src := s.seg.source()
		if src.mem != nil || src.file.Acquire() {
			s.src = src
			return nil
		}
		if s.seg.source() == src {
			return ErrClosed
		}
	}
}

// hasMoved reports whether the segment has had another source since holdSource.
func (s span) hasMoved() bool { return s.seg != nil && s.seg.source() != s.src }

// findRecords finds the numbers of the records of the span, whose source is held.
func (s *span) findRecords() error {
	if s.mem != nil {
		s.first, s.limit = s.mem.Ceil(s.from), s.mem.Len()
		return nil
	}
	return segfile.Guard(func(a *segfile.Access) (err error) {
		if s.src.file != nil {
			a.Borrow(s.src.file)
		}
		s.first, s.limit, err = s.seg.findBounds(s.src, s.from)
		return err
	})
}

// releaseSource releases the held file.
func (s *span) releaseSource() {
	if s.src != nil && s.src.file != nil {
		s.src.file.Release()
	}
	s.src = nil
}

// releaseSources releases the held files.
func releaseSources(spans []span) {
	for i := range spans {
		spans[i].releaseSource()
	}
}

// spans returns the sources of the records at and above from, in order.
func (v *View) spans(from kv.Rev) []span {
	i := sort.Search(len(v.lasts), func(i int) bool { return !v.lasts[i].Less(from) })
	spans := make([]span, 0, len(v.segs)-i+2)
	for _, s := range v.segs[i:] {
		if s.first != (kv.Rev{}) {
			spans = append(spans, span{seg: s, from: from})
		}
	}
	for _, m := range []*growing.Memory{&v.tail, v.pend} {
		if m != nil && m.Len() > 0 {
			sp := span{mem: m, from: from}
			if m == &v.tail {
				sp.open = v.open
			}
			spans = append(spans, sp)
		}
	}
	return spans
}
