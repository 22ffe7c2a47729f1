package pbfield

import (
	"encoding/binary"
	"math/bits"
)

// AppendInt appends a number or an enum. It leaves out a zero.
func AppendInt[T integer](b []byte, num int, v T) []byte {
	if v == 0 {
		return b
	}
	return appendPair(b, uint64(num)<<3|typeVarint, uint64(v))
}

// AppendPresentInt appends a number, even a zero, as members of a oneof are.
func AppendPresentInt(b []byte, num int, v int64) []byte {
	return appendPair(b, uint64(num)<<3|typeVarint, uint64(v))
}

// AppendBool appends a boolean. It leaves out false.
func AppendBool(b []byte, num int, v bool) []byte {
	if !v {
		return b
	}
	return appendPair(b, uint64(num)<<3|typeVarint, 1)
}

// AppendBytes appends bytes or a text. It leaves out an empty one.
func AppendBytes[T ~string | ~[]byte](b []byte, num int, v T) []byte {
	if len(v) == 0 {
		return b
	}
	return append(AppendLen(b, num, len(v)), v...)
}

// AppendPresent appends bytes, even none, as elements of a list, embedded messages and members of a
// oneof are.
func AppendPresent(b []byte, num int, v []byte) []byte {
	return append(AppendLen(b, num, len(v)), v...)
}

// AppendLen begins a field of n bytes, which the caller appends.
func AppendLen(b []byte, num, n int) []byte {
	return appendPair(b, uint64(num)<<3|typeBytes, uint64(n))
}

// BeginMessage begins an embedded message of unknown size. The caller appends its fields and calls
// EndMessage with at.
func BeginMessage(b []byte, num int) (out []byte, at int) {
	b = AppendLen(b, num, 0)
	return b, len(b)
}

// EndMessage completes an embedded message. BeginMessage has left one byte for the length; a longer
// message moves to make room for more.
func EndMessage(b []byte, at int) []byte {
	size := len(b) - at
	if size < 0x80 {
		b[at-1] = byte(size)
		return b
	}
	var room [binary.MaxVarintLen64]byte
	more := SizeVarint(uint64(size)) - 1
	b = append(b, room[:more]...)
	copy(b[at+more:], b[at:at+size])
	binary.PutUvarint(b[at-1:], uint64(size))
	return b
}

// SizeVarint returns the size of a number without a tag.
func SizeVarint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// SizeBytes returns the size of a length and n bytes.
func SizeBytes(n int) int { return SizeVarint(uint64(n)) + n }

// appendPair appends a tag and the number after it.
func appendPair(b []byte, tag, v uint64) []byte {
	if tag < 0x80 && v < 0x80 {
		return append(b, byte(tag), byte(v))
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, tag), v)
}
