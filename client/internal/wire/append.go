package wire

import (
	"encoding/binary"
	"math/bits"
)

// Wire types of protocol buffers.
const (
	TypeVarint  = 0
	typeFixed64 = 1
	TypeBytes   = 2
	typeFixed32 = 5
)

func appendTag(b []byte, field, typ int) []byte {
	return binary.AppendUvarint(b, uint64(field)<<3|uint64(typ))
}

// appendInt appends a varint field; a zero is left out.
func appendInt(b []byte, field int, v int64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(appendTag(b, field, TypeVarint), uint64(v))
}

func appendBool(b []byte, field int, v bool) []byte {
	if !v {
		return b
	}
	return append(appendTag(b, field, TypeVarint), 1)
}

// appendBytes appends a field of bytes or text; an empty one is left out.
func appendBytes[T ~string | ~[]byte](b []byte, field int, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = binary.AppendUvarint(appendTag(b, field, TypeBytes), uint64(len(v)))
	return append(b, v...)
}

// beginMessage starts an embedded message, which the caller appends before endMessage completes it. It leaves one byte
// for the length and endMessage inserts more, so that no size need be computed in advance.
func beginMessage(b []byte, field int) (out []byte, at int) {
	b = append(appendTag(b, field, TypeBytes), 0)
	return b, len(b)
}

func endMessage(b []byte, at int) []byte {
	size := len(b) - at
	if size < 0x80 {
		b[at-1] = byte(size)
		return b
	}
	var room [binary.MaxVarintLen64]byte
	more := sizeVarint(uint64(size)) - 1
	b = append(b, room[:more]...)
	copy(b[at+more:], b[at:at+size])
	binary.PutUvarint(b[at-1:], uint64(size))
	return b
}

func sizeVarint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
