package history

import "vigil/internal/store/history/format"

// chunk is a piece of a segment in memory: buf[0] is the byte at offset start. The bytes after the last record
// in a table belong to the writer alone.
type chunk struct {
	start uint32
	buf   []byte
}

// memory is a segment, or a part of one, in memory: the open one and one that is being sealed. It is
// a value that grows only by appending, so a copy is a picture that stays.
type memory struct {
	format.Table
	chunks []chunk
}

// at returns record i, header and all. It stays valid.
func (m *memory) at(i int) []byte {
	off := m.Offset(i)
	lo, hi := 0, len(m.chunks)-1
	for lo < hi {
		mid := int(uint(lo+hi+1) / 2)
		if m.chunks[mid].start <= off {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	b := m.chunks[lo].buf[off-m.chunks[lo].start:]
	size := format.RecordSize(b)
	return b[:size:size]
}
