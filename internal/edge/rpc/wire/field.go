package wire

import (
	"encoding/binary"
	"math/bits"
)

// The wire types of protocol buffers.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeStart   = 3
	typeEnd     = 4
	typeFixed32 = 5
)

// maxField is the largest number a field can have.
const maxField = 1<<29 - 1

// takeVarint reads a varint at the start of b. n is the number of bytes it takes, 0 or less if
// there is none.
func takeVarint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// takeBytes reads a length and that many bytes at the start of b. n is the number of bytes taken
// in all, 0 or less if b is too short. The result aliases b and is nil if it is empty.
func takeBytes(b []byte) (v []byte, n int) {
	length, n := takeVarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, 0
	}
	if length == 0 {
		return nil, n
	}
	end := n + int(length)
	return b[n:end:end], end
}

func takeInt64(b []byte, v *int64) int {
	x, n := takeVarint(b)
	*v = int64(x)
	return n
}

func takeInt32[T ~int32](b []byte, v *T) int {
	x, n := takeVarint(b)
	*v = T(x)
	return n
}

func takeBool(b []byte, v *bool) int {
	x, n := takeVarint(b)
	*v = x != 0
	return n
}

// skipField passes over the content of a field whose tag has been read. It returns the number of
// bytes, or 0 with an error.
func skipField(tag uint64, b []byte) (int, error) {
	n := skip(tag, b, MaxDepth)
	if n <= 0 {
		return 0, ErrInvalid
	}
	return n, nil
}

func skip(tag uint64, b []byte, depth int) int {
	if num := tag >> 3; num < 1 || num > maxField {
		return 0
	}
	switch tag & 7 {
	case typeVarint:
		_, n := takeVarint(b)
		return n
	case typeFixed64:
		return fixed(b, 8)
	case typeFixed32:
		return fixed(b, 4)
	case typeBytes:
		_, n := takeBytes(b)
		return n
	case typeStart:
		return skipGroup(tag, b, depth)
	}
	return 0
}

func fixed(b []byte, n int) int {
	if len(b) < n {
		return 0
	}
	return n
}

// skipGroup passes over the fields of a group and the tag that ends it. Inside a group the
// generated code lets field numbers be a little larger than elsewhere.
func skipGroup(start uint64, b []byte, depth int) int {
	if depth < 0 {
		return 0
	}
	at := 0
	for {
		tag, n := takeVarint(b[at:])
		if n <= 0 || tag>>3 < 1 || tag>>3 > 1<<31-1 {
			return 0
		}
		at += n
		if tag&7 == typeEnd {
			if tag>>3 != start>>3 {
				return 0
			}
			return at
		}
		// The number no longer matters but for a group, whose end must repeat it.
		if tag&7 == typeStart {
			n = skipGroup(tag, b[at:], depth-1)
		} else {
			n = skip(1<<3|tag&7, b[at:], depth-1)
		}
		if n <= 0 {
			return 0
		}
		at += n
	}
}

// sizeVarint returns how many bytes v takes as a varint.
func sizeVarint(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// sizeBytes returns the size of a length and n bytes.
func sizeBytes(n int) int { return sizeVarint(uint64(n)) + n }

// sizeUint returns the size of a varint field with a one-byte tag; a zero is left out.
func sizeUint(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + sizeVarint(v)
}

func sizeBool(v bool) int {
	if v {
		return 2
	}
	return 0
}

func appendUint(b []byte, field int, v uint64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(append(b, byte(field<<3|typeVarint)), v)
}

func appendBool(b []byte, field int, v bool) []byte {
	if !v {
		return b
	}
	return append(b, byte(field<<3|typeVarint), 1)
}

// appendLen begins a field of n bytes, which must follow. An embedded message that is empty is
// still written, since it is present.
func appendLen(b []byte, field, n int) []byte {
	return binary.AppendUvarint(append(b, byte(field<<3|typeBytes)), uint64(n))
}

func appendBytes(b []byte, field int, v []byte) []byte {
	return append(appendLen(b, field, len(v)), v...)
}
