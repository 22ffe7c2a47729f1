package metas

import (
	"sync"

	"vigil/internal/store/history/format"
)

// place is the place of the newest record of a bucket and key.
type place struct {
	id   uint64 // of the segment it was written to
	size int64
}

// Index knows where the newest meta records are, and how many bytes of older ones, and of
// deletions, each segment has. It holds committed records only, and is safe for concurrent use.
type Index struct {
	mu    sync.Mutex
	small map[shortText]place // the newest records, by name
	large map[string]place    // those whose names are longer
	dead  map[uint64]int64    // by segment
}

// NewIndex returns an Index without records.
func NewIndex() *Index {
	return &Index{small: map[shortText]place{}, large: map[string]place{}, dead: map[uint64]int64{}}
}

// Note records that m was committed to segment id.
func (x *Index) Note(id uint64, m *format.Meta) {
	x.mu.Lock()
	defer x.mu.Unlock()
	size := int64(format.RecordHeaderSize + format.MetaSize(m))
	if name, ok := shortName(m); ok {
		note(x, x.small, name, id, size, m.Deleted)
	} else {
		note(x, x.large, m.Name(), id, size, m.Deleted)
	}
}

// note is Note for one of the maps of x.
func note[N comparable](x *Index, newest map[N]place, name N, id uint64, size int64, deleted bool) {
	old, ok := newest[name]
	if ok {
		x.dead[old.id] += old.size
	}
	if deleted {
		delete(newest, name)
		x.dead[id] += size
		return
	}
	newest[name] = place{id, size}
}

// Newest returns the segment of the newest record of a bucket and key; it returns false if there is
// none, or a deletion.
func (x *Index) Newest(bucket byte, key []byte) (id uint64, ok bool) {
	m := format.Meta{Bucket: bucket, Key: key}
	x.mu.Lock()
	defer x.mu.Unlock()
	var at place
	if name, short := shortName(&m); short {
		at, ok = x.small[name]
	} else {
		at, ok = x.large[m.Name()]
	}
	return at.id, ok
}

// DeadIn returns the bytes that are dead in the segments first to last.
func (x *Index) DeadIn(first, last uint64) (n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
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

// Clean records that the segments first to last were rewritten. Deletions that had to stay are not
// counted again; otherwise they would be rewritten forever.
func (x *Index) Clean(first, last uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.dead {
		if id >= first && id <= last {
			delete(x.dead, id)
		}
	}
}
