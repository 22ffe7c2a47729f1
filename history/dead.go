package history

import (
	"math/bits"
	"slices"
	"sync"

	"vigil/kv"
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
	count        int
	bytes, tombs int64
}

func (d *deadSet) has(i int) bool { return i>>6 < len(d.bits) && d.bits[i>>6]&(1<<(i&63)) != 0 }

// add marks record i, size bytes long, unless it is marked.
func (d *deadSet) add(i int, size int64, tombstone bool) {
	if d.has(i) {
		return
	}
	if n := i>>6 + 1; n > len(d.bits) {
		d.bits = slices.Grow(d.bits, n-len(d.bits))[:n]
	}
	d.bits[i>>6] |= 1 << (i & 63)
	d.count++
	d.bytes += size
	if tombstone {
		d.tombs += size
	}
}

// since calls fn with the number of every record that is dead now and is not in old.
func (d *deadSet) since(old []uint64, fn func(i int)) {
	for w, now := range d.bits {
		if w < len(old) {
			now &^= old[w]
		}
		for ; now != 0; now &= now - 1 {
			fn(w<<6 + bits.TrailingZeros64(now))
		}
	}
}

// Dead notes that records are not needed any more; reclaim takes their space back some time. It may
// be told the same record again, and one that is gone. It is kept in memory only: who calls it must
// tell everything again after Open.
//
// The caller vouches that what made them dead is committed, and that a tombstone is told only when
// all older records of its key are.
func (l *Log) Dead(recs []DeadRecord) error {
	defer l.kickReclaim()
	for len(recs) > 0 {
		n := min(len(recs), deadChunk)
		if err := l.markDead(recs[:n]); err != nil {
			return err
		}
		recs = recs[n:]
	}
	return nil
}

func (l *Log) markDead(recs []DeadRecord) error {
	l.dead.Lock()
	defer l.dead.Unlock()
	v := l.view.Load()
	return guard(func(a *access) error {
		for i := range recs {
			r := &recs[i]
			s := v.segmentOf(r.Rev)
			if s == nil {
				if n := v.tail.find(r.Rev); n >= 0 {
					v.open.seg.dead.add(n, recordSpan(&v.tail, n, v.end), r.Tombstone)
				}
				continue
			}
			s = s.home()
			src := s.src.Load() // reclaim, which alone merges, does so under l.dead
			if src.mem != nil {
				if n := src.mem.find(r.Rev); n >= 0 {
					s.dead.add(n, recordSpan(src.mem, n, uint32(s.size.Load())), r.Tombstone)
				}
				continue
			}
			if err := a.to(src.file); err != nil {
				return err
			}
			t := &src.file.table
			if n := t.find(r.Rev); n >= 0 {
				s.dead.add(n, recordSpan(t, n, src.file.foot.bodyEnd), r.Tombstone)
			}
		}
		return nil
	})
}

// recordSpan returns about how many bytes record i takes, reading no more than the table: those up
// to the next record, or to end.
func recordSpan(t locator, i int, end uint32) int64 {
	if i+1 < t.len() {
		end = t.offset(i + 1)
	}
	return max(int64(end)-int64(t.offset(i)), recordHeaderSize)
}

// metaPlace is where the newest record of a bucket and key is.
type metaPlace struct {
	id   uint64 // of the segment it was written to
	size int64
}

// metaIndex knows where the newest meta records are, and how many bytes of older ones, and of
// deletions, each segment has. It holds committed records only.
type metaIndex struct {
	sync.Mutex
	newest map[string]metaPlace
	dead   map[uint64]int64 // by segment
}

func metaName(m *Meta) string { return string(m.Bucket) + string(m.Key) }

// note takes note of a record in segment id.
func (x *metaIndex) note(id uint64, m *Meta) {
	x.Lock()
	defer x.Unlock()
	name, size := metaName(m), int64(recordHeaderSize+metaSize(m))
	if old, ok := x.newest[name]; ok {
		x.dead[old.id] += old.size
	}
	if m.Deleted {
		delete(x.newest, name)
		x.dead[id] += size
		return
	}
	x.newest[name] = metaPlace{id, size}
}

// deadIn returns the bytes that are dead in the segments first to last.
func (x *metaIndex) deadIn(first, last uint64) (n int64) {
	x.Lock()
	defer x.Unlock()
	if uint64(len(x.dead)) < last-first {
		for id, b := range x.dead {
			if id >= first && id <= last {
				n += b
			}
		}
		return n
	}
	for id := first; id <= last; id++ {
		n += x.dead[id]
	}
	return n
}

// clean notes that the segments first to last were rewritten. Deletions that had to stay do not count
// again, or nothing would end.
func (x *metaIndex) clean(first, last uint64) {
	x.Lock()
	defer x.Unlock()
	for id := range x.dead {
		if id >= first && id <= last {
			delete(x.dead, id)
		}
	}
}
