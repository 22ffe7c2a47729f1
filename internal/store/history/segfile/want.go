package segfile

import (
	"encoding/binary"
	"math/bits"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// Want is a record, and how it is to be appended to a buffer.
type Want struct {
	Rev kv.Rev
	// Room is how many bytes may be appended.
	Room int
	// Tag, if not 0, is the tag of a field: the record is appended as an element of that field of a
	// protobuf message. Then Room is what the buffer has, and it must not grow.
	Tag byte
}

// Fits reports whether there is room for a record of n bytes.
func (w *Want) Fits(n int) bool {
	if w.Tag == 0 {
		return n <= w.Room
	}
	return 1+(bits.Len(uint(n)|1)+6)/7+n+format.RecordHeaderSize <= w.Room
}

// AppendWithin appends a record. If there is no room for it, it returns the size of the record as
// need instead.
func (w *Want) AppendWithin(dst, data []byte) (out []byte, need int) {
	if !w.Fits(len(data)) {
		return dst, len(data)
	}
	return w.Append(dst, data), 0
}

// Append appends a record.
func (w *Want) Append(dst, data []byte) []byte {
	if w.Tag != 0 {
		dst = binary.AppendUvarint(append(dst, w.Tag), uint64(len(data)))
	}
	return append(dst, data...)
}
