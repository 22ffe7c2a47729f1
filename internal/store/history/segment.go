package history

import (
	"sync/atomic"

	"vigil/internal/kv"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
)

// segment is a segment as readers see it, from the moment it is the open one. The place that its
// records are read from changes: from memory to the sealed file, and later to the segment that it
// was merged into.
type segment struct {
	id    uint64
	first kv.Rev // of the first record; like last not set while the segment is open
	last  kv.Rev // of the newest record in this segment or before it
	size  atomic.Int64
	src   atomic.Pointer[source]  // nil while the segment is open, and after it was merged
	into  atomic.Pointer[segment] // the segment that it was merged into
	// Guarded by catalog.dead.
	dead    garbage.Set
	damaged bool // it cannot be rewritten
}

// source is where the records of a segment are: a segment in memory that is full and not sealed
// yet, or a sealed file. mem is the memory of full.
type source struct {
	full *growing.Segment
	mem  *growing.Memory
	file *segfile.File
}

// newSealed returns the segment of a sealed file. last is its newest revision, or the newest one
// before it if the file has no record.
func newSealed(file *segfile.File, last kv.Rev) *segment {
	foot := file.Footer()
	s := &segment{id: foot.FirstID, first: foot.First, last: last}
	s.setFile(file)
	return s
}

// setFile makes a sealed file the source of the segment.
func (s *segment) setFile(file *segfile.File) {
	s.size.Store(file.Footer().FileSize())
	s.src.Store(&source{file: file})
}

// setFull makes the open segment a full one, which is still read from memory. before is the newest
// revision before it.
func (s *segment) setFull(g *growing.Segment, before kv.Rev) {
	s.first, s.last = g.First, g.Last
	if s.last == (kv.Rev{}) {
		s.last = before
	}
	s.size.Store(int64(g.End))
	s.src.Store(&source{full: g, mem: &g.Memory})
}

// source returns where the records of s are now, among others if s was merged. By the time it is
// used it may have been merged again: a file that cannot be acquired is asked for once more.
func (s *segment) source() *source {
	for {
		src := s.src.Load()
		if src != nil {
			return src
		}
		s = s.into.Load() // merge sets it before it clears src
	}
}

// file returns the sealed file of the segment itself, nil if it has none yet or was merged.
func (s *segment) file() *segfile.File {
	if src := s.src.Load(); src != nil {
		return src.file
	}
	return nil
}

// full returns the segment in memory while it is full and not sealed, nil before and after.
func (s *segment) full() *growing.Segment {
	if src := s.src.Load(); src != nil {
		return src.full
	}
	return nil
}

// acquire returns the source of s. If it is a file, a holds it. Its error is ErrClosed.
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

// countGarbage returns how many bytes of the segment are dead records and their places in the
// tables, and how many of these are tombstones and theirs. The caller holds catalog.dead.
func (s *segment) countGarbage() (all, tombs int64) {
	all, tombs = s.dead.Dead.Bytes, s.dead.Tombstones.Bytes
	if f := s.file(); f != nil && f.Footer().Records > 0 {
		foot := f.Footer()
		tables := foot.TableSize() - 4*int64(foot.Metas)
		all += tables * int64(s.dead.Dead.Records) / int64(foot.Records)
		tombs += tables * int64(s.dead.Tombstones.Records) / int64(foot.Records)
	}
	return all, tombs
}

// findBounds returns the numbers that the records of s at or above from have in src. Once s was
// merged there are others before and after them.
func (s *segment) findBounds(src *source, from kv.Rev) (first, limit int, err error) {
	if from.Less(s.first) {
		from = s.first
	}
	if src.mem != nil {
		return src.mem.Ceil(from), src.mem.Ceil(after(s.last)), nil
	}
	if first, err = src.file.Ceil(from); err != nil {
		return 0, 0, err
	}
	if limit, err = src.file.Ceil(after(s.last)); err != nil {
		return 0, 0, err
	}
	return first, limit, nil
}

// after returns the least revision above rev.
func after(rev kv.Rev) kv.Rev { return kv.Rev{Main: rev.Main, Sub: rev.Sub + 1} }

// readRecord appends a record to dst, if there is room.
func (s *segment) readRecord(a *segfile.Access, w *segfile.Want, dst []byte) (out []byte,
	need int, err error) {
	src, err := s.acquire(a)
	if err != nil {
		return dst, 0, err
	}
	if src.mem != nil {
		return appendWithin(src.mem.Data(w.Rev), w, dst)
	}
	if a.Resident {
		if i, ok := src.file.Locate(w.Rev, w.Room); ok {
			return src.file.Get(i, w, dst)
		}
		return dst, 0, nil
	}
	switch i, err := src.file.Find(w.Rev); {
	case err != nil:
		return dst, 0, err
	case i < 0:
		return dst, 0, ErrNotFound
	default:
		return src.file.Get(i, w, dst)
	}
}

// appendWithin appends a record in memory. Without data there is none.
func appendWithin(data []byte, w *segfile.Want, dst []byte) (out []byte, need int, err error) {
	if data == nil {
		return dst, 0, ErrNotFound
	}
	out, need = w.AppendWithin(dst, data)
	return out, need, nil
}
