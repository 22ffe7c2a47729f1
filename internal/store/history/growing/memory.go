package growing

import (
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// Chunk is a piece of a segment in memory: Buf[0] is the byte at offset Start. The bytes after the
// last record in a table belong to the writer alone.
type Chunk struct {
	Start uint32
	Buf   []byte
}

// ChunkBytes is the size of the chunks. A reference to a record keeps its chunk from being freed.
const ChunkBytes = 512 << 10

// Memory is a segment, or a part of one, in memory. It is a value that grows only by appending, so
// a copy of it never changes.
type Memory struct {
	format.Table
	Chunks []Chunk
}

// At returns record i with its header. The bytes never change.
func (m *Memory) At(i int) []byte {
	b := m.from(i)
	size := format.RecordSize(b)
	return b[:size:size]
}

// from returns the bytes from record i on.
func (m *Memory) from(i int) []byte {
	off := m.Offset(i)
	lo, hi := 0, len(m.Chunks)-1
	for lo < hi {
		mid := int(uint(lo+hi+1) / 2)
		if m.Chunks[mid].Start <= off {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return m.Chunks[lo].Buf[off-m.Chunks[lo].Start:]
}

// Ahead returns the beginning of record i, or all of it, without reading it.
func (m *Memory) Ahead(i int) []byte {
	b, n := m.from(i), format.RecordHeaderSize
	if i+1 < m.Len() {
		if next := int(m.Offset(i+1)) - int(m.Offset(i)); next > n && next <= len(b) {
			n = next // what follows the last record may be written at this moment
		}
	}
	return b[:n]
}

// Data returns the content of the record at rev, nil if there is none. The bytes never change.
func (m *Memory) Data(rev kv.Rev) []byte {
	i := m.Find(rev)
	if i < 0 {
		return nil
	}
	return m.At(i)[format.RecordHeaderSize:]
}
