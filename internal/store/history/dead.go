package history

import (
	"iter"
	"math/bits"
	"slices"

	"vigil/internal/kv"
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

// deadSet says which records of a segment are dead, by their number.
type deadSet struct {
	bits []uint64
	// count and bytes are of all dead records, tombs of the tombstones among them.
	count, tombs deadCount
	// unsure says that something may be dead that is not marked, since it could not be found. Then a
	// tombstone after it may delete a put that stays, and has to stay too, until Open begins anew.
	unsure bool
}

// deadCount is a number of records and their bytes.
type deadCount struct {
	records int
	bytes   int64
}

func (c *deadCount) add(size int64) {
	c.records++
	c.bytes += size
}

// shelters reports whether tombstones after the segment must stay.
func (d *deadSet) shelters() bool { return d.count.records > 0 || d.unsure }

func (d *deadSet) has(i int) bool { return i>>6 < len(d.bits) && d.bits[i>>6]&(1<<(i&63)) != 0 }

// markRecord marks record i, size bytes long, unless it is marked.
func (d *deadSet) markRecord(i int, size int64, tombstone bool) {
	if d.has(i) {
		return
	}
	if n := i>>6 + 1; n > len(d.bits) {
		d.bits = slices.Grow(d.bits, n-len(d.bits))[:n]
	}
	d.bits[i>>6] |= 1 << (i & 63)
	d.count.add(size)
	if tombstone {
		d.tombs.add(size)
	}
}

// since yields the number of every record that is dead now and is not in old.
func (d *deadSet) since(old []uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for w, now := range d.bits {
			if w < len(old) {
				now &^= old[w]
			}
			for ; now != 0; now &= now - 1 {
				if !yield(w<<6 + bits.TrailingZeros64(now)) {
					return
				}
			}
		}
	}
}

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
				v.open.seg.dead.mark(&v.tail, r, v.end)
				continue
			}
			s = s.home()
			if s.dead.unsure {
				continue
			}
			src := s.src.Load() // reclaim, which alone merges, does so under c.dead
			if src.mem != nil {
				s.dead.mark(src.mem, r, uint32(s.size.Load()))
				continue
			}
			if err := a.To(src.file); err != nil {
				return err
			}
			i, err := src.file.Find(r.Rev)
			if err == nil && i >= 0 {
				err = s.dead.markFile(src.file, i, r.Tombstone)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.dead.unsure = true
		n++
	}
	return n, err
}

// mark marks the record of a segment in memory that ends at end.
func (d *deadSet) mark(m *memory, r *DeadRecord, end uint32) {
	i := m.Find(r.Rev)
	if i < 0 {
		return
	}
	if i+1 < m.Len() {
		end = m.Offset(i + 1)
	}
	d.markRecord(i, int64(end-m.Offset(i)), r.Tombstone)
}

// markFile marks record i of a file.
func (d *deadSet) markFile(f *segfile.File, i int, tombstone bool) error {
	size, err := f.Span(i)
	if err == nil {
		d.markRecord(i, size, tombstone)
	}
	return err
}

// garbage returns how many bytes of the segment are dead records and their places in the tables, and
// how many of these are tombstones and theirs. The caller holds Log.dead.
func (s *segment) garbage() (all, tombs int64) {
	all, tombs = s.dead.count.bytes, s.dead.tombs.bytes
	if f := s.src.Load().file; f != nil && f.Footer().Records > 0 {
		foot := f.Footer()
		tables := foot.TableSize() - 4*int64(foot.Metas)
		all += tables * int64(s.dead.count.records) / int64(foot.Records)
		tombs += tables * int64(s.dead.tombs.records) / int64(foot.Records)
	}
	return all, tombs
}
