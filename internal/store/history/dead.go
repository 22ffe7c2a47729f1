package history

import (
	"vigil/internal/kv"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
)

// DeadRecord names a record that no read can see any more and no rebuild of the index needs.
type DeadRecord struct {
	Rev kv.Rev
	// Tombstone is set if the record is a deletion.
	Tombstone bool
}

// deadChunk is how many records are marked while the lock is held.
const deadChunk = 256

// markAllDead marks records. A record that cannot be marked is skipped; the first error is
// returned.
func (c *catalog) markAllDead(recs []DeadRecord) (err error) {
	for len(recs) > 0 {
		n, merr := c.markSomeDead(recs[:min(len(recs), deadChunk)])
		recs = recs[n:]
		if err == nil {
			err = merr
		}
	}
	return err
}

// markSomeDead marks records up to the end or the first that cannot be marked, and returns how many
// that is, this one included.
func (c *catalog) markSomeDead(recs []DeadRecord) (n int, err error) {
	c.dead.Lock()
	defer c.dead.Unlock()
	v := c.manifest.Load()
	var s *segment
	err = segfile.Guard(func(a *segfile.Access) error {
		for ; n < len(recs); n++ {
			r := &recs[n]
			s = v.segmentOf(r.Rev)
			if s == nil {
				markMemory(&v.open.dead, &v.tail, r, v.end)
				continue
			}
			if s.dead.Unsure {
				continue
			}
			src := s.src.Load() // mergeRun, which alone clears it, holds c.dead
			if src.mem != nil {
				markMemory(&s.dead, src.mem, r, src.full.End)
				continue
			}
			if err := a.To(src.file); err != nil {
				return err
			}
			i, err := src.file.Find(r.Rev)
			if err == nil && i >= 0 {
				err = markFile(&s.dead, src.file, i, r.Tombstone)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.dead.Unsure = true
		c.reports.ReportDamage(err)
		n++
	}
	return n, err
}

// noteDamaged records that a segment cannot be rewritten.
func (c *catalog) noteDamaged(s *segment) {
	c.dead.Lock()
	defer c.dead.Unlock()
	s.damaged = true
}

// markMemory marks the record of a segment in memory that ends at end.
func markMemory(d *garbage.Set, m *growing.Memory, r *DeadRecord, end uint32) {
	i := m.Find(r.Rev)
	if i < 0 {
		return
	}
	if i+1 < m.Len() {
		end = m.Offset(i + 1)
	}
	d.Mark(i, int64(end-m.Offset(i)), r.Tombstone)
}

// markFile marks record i of a file.
func markFile(d *garbage.Set, f *segfile.File, i int, tombstone bool) error {
	size, err := f.Span(i)
	if err == nil {
		d.Mark(i, size, tombstone)
	}
	return err
}
