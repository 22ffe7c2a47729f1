package history

import (
	"sync"
	"vigil/internal/store/history/format"
)

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
	name, size := metaName(m), int64(format.RecordHeaderSize+format.MetaSize(m))
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
