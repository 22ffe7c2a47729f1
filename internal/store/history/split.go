package history

import (
	"slices"

	"vigil/internal/kv"
)

// Split cuts all records of the view into at most n contiguous parts of about the same number of
// bytes, in order. The scanners may be used each in a goroutine of its own. A part may hold part of
// a revision. The scanners hold the files they read, so they must be closed.
func (v *View) Split(n int) []*Scanner {
	var total int64
	spans := v.spans(kv.Rev{})
	for i := range spans {
		total += spans[i].countBytes(v)
	}
	target := total/int64(max(n, 1)) + 1
	var parts []*Scanner
	part, room := &Scanner{}, target
	if err := holdSources(spans); err != nil {
		return []*Scanner{{err: err}}
	}
	defer releaseSources(spans)
	for _, s := range spans {
		if err := s.findRecords(); err != nil {
			part.err = err
			break
		}
		records, bytes := s.limit-s.first, max(s.countBytes(v), 1)
		for at := s.first; at < s.limit; {
			take := int((room*int64(records) + bytes - 1) / bytes)
			if len(parts) == n-1 {
				take = records
			}
			take = min(max(take, 1), s.limit-at)
			cut := s
			cut.first, cut.limit = at, at+take
			if cut.src.file != nil {
				cut.src.file.Hold()
			}
			part.spans = append(part.spans, cut)
			at += take
			if room -= int64(take) * bytes / int64(records); room <= 0 && len(parts) < n-1 {
				parts = append(parts, part)
				part, room = &Scanner{}, target
			}
		}
	}
	if len(part.spans) > 0 || part.err != nil {
		parts = append(parts, part)
	}
	return slices.Clip(parts)
}
