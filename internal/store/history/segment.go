package history

import (
	"sync/atomic"
	"vigil/internal/kv"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
)

// segment is a segment as readers see it, from the moment the first batch is written to it. Where
// its records are read from changes: from memory to the sealed file, and later to the segment that
// it was merged into.
type segment struct {
	id    uint64
	first kv.Rev // of the first record; like last not set while the segment is open
	last  kv.Rev // of the newest record in this segment or before it
	size  atomic.Int64
	src   atomic.Pointer[source]
	// Guarded by Log.dead.
	dead    garbage.Set
	damaged bool // it cannot be rewritten
}

// source is exactly one of its fields.
type source struct {
	mem  *growing.Memory
	file *segfile.File
	next *segment
}

// home returns the segment that now holds what s held: s itself unless it was merged.
func (s *segment) home() *segment {
	for {
		src := s.src.Load()
		if src == nil || src.next == nil {
			return s
		}
		s = src.next
	}
}

// source returns where the records of s are now, among others if s was merged. By the time it is
// used it may have been merged again: a file that cannot be acquired is asked for once more.
func (s *segment) source() *source {
	for {
		src := s.src.Load()
		if src.next == nil {
			return src
		}
		s = src.next
	}
}

// acquire returns the source of s, a file being held by a. Its error is ErrClosed.
func (s *segment) acquire(a *segfile.Access) (*source, error) {
	for {
		src := s.source()
		if src.mem != nil || a.To(src.file) == nil {
			return src, nil
		}
		if s.source() == src {
			return nil, ErrClosed
		}
	}
}
