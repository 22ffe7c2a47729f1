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

// noteDead is Log.Dead.
func (c *catalog) noteDead(recs []DeadRecord) (err error) {
	defer c.rec.kick()
	for len(recs) > 0 {
		n, merr := c.markDead(recs[:min(len(recs), deadChunk)])
		recs = recs[n:]
		if err == nil {
			err = merr
		}
	}
	return err
}

// markDead marks records up to the end or the first that cannot be marked, and returns how many that
// is, this one included.
func (c *catalog) markDead(recs []DeadRecord) (n int, err error) {
	c.dead.Lock()
	defer c.dead.Unlock()
	v := c.view.Load()
	var s *segment
	err = segfile.Guard(func(a *segfile.Access) error {
		for ; n < len(recs); n++ {
			r := &recs[n]
			s = v.segmentOf(r.Rev)
			if s == nil {
				markMemory(&v.open.seg.dead, &v.tail, r, v.end)
				continue
			}
			s = s.home()
			if s.dead.Unsure {
				continue
			}
			src := s.src.Load() // reclaim, which alone merges, does so under c.dead
			if src.mem != nil {
				markMemory(&s.dead, src.mem, r, uint32(s.size.Load()))
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
		c.ReportDamage(err)
		n++
	}
	return n, err
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

// garbage returns how many bytes of the segment are dead records and their places in the tables, and
// how many of these are tombstones and theirs. The caller holds Log.dead.
func (s *segment) garbage() (all, tombs int64) {
	all, tombs = s.dead.Dead.Bytes, s.dead.Tombstones.Bytes
	if f := s.src.Load().file; f != nil && f.Footer().Records > 0 {
		foot := f.Footer()
		tables := foot.TableSize() - 4*int64(foot.Metas)
		all += tables * int64(s.dead.Dead.Records) / int64(foot.Records)
		tombs += tables * int64(s.dead.Tombstones.Records) / int64(foot.Records)
	}
	return all, tombs
}
