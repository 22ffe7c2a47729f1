// Package record encodes and decodes mvccpb.KeyValue messages, as history stores them.
//
// Decode replaces the whole value: fields that the encoding lacks are zero afterwards. Slices alias
// the encoding.
package record

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// KeyValue is a mvccpb.KeyValue.
type KeyValue struct {
	Key, Value                  []byte
	Create, Mod, Version, Lease int64
}

// The fields of mvccpb.KeyValue.
const (
	fieldKey = 1 + iota
	fieldCreate
	fieldMod
	fieldVersion
	fieldValue
	fieldLease
)

// The wire types of Protocol Buffers that an encoding may contain.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

var ErrMalformed = errors.New("mvcc: malformed record")

// Append appends the encoding of r. It leaves out fields without a value, as proto3 does.
func (r *KeyValue) Append(dst []byte) []byte {
	dst = appendBytes(dst, fieldKey, r.Key)
	dst = appendInt(dst, fieldCreate, r.Create)
	dst = appendInt(dst, fieldMod, r.Mod)
	dst = appendInt(dst, fieldVersion, r.Version)
	dst = appendBytes(dst, fieldValue, r.Value)
	return appendInt(dst, fieldLease, r.Lease)
}

// Size returns the size of the encoding.
func (r *KeyValue) Size() int {
	n := 0
	for _, b := range [...][]byte{r.Key, r.Value} {
		if len(b) > 0 {
			n += FrameSize(len(b)) + len(b)
		}
	}
	for _, v := range [...]int64{r.Create, r.Mod, r.Version, r.Lease} {
		if v != 0 {
			n += 1 + (bits.Len64(uint64(v))+6)/7
		}
	}
	return n
}

func appendInt(dst []byte, field byte, v int64) []byte {
	if v == 0 {
		return dst
	}
	return binary.AppendUvarint(append(dst, field<<3|wireVarint), uint64(v))
}

func appendBytes(dst []byte, field byte, v []byte) []byte {
	if len(v) == 0 {
		return dst
	}
	dst = binary.AppendUvarint(append(dst, field<<3|wireBytes), uint64(len(v)))
	return append(dst, v...)
}

// KeyAt returns the offsets of the key in an encoding that Append made of a record with that key.
func KeyAt(key []byte) (from, to int) {
	if len(key) == 0 {
		return 0, 0
	}
	from = 1 + (bits.Len(uint(len(key)))+6)/7
	return from, from + len(key)
}

// Decode reads an encoding. It skips unknown fields; if a field occurs twice the last one counts.
func (r *KeyValue) Decode(b []byte) error {
	*r = KeyValue{}
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
			return ErrMalformed
		}
		b = b[n:]
		switch tag & 7 {
		case wireVarint:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return ErrMalformed
			}
			b = b[n:]
			switch tag >> 3 {
			case fieldCreate:
				r.Create = int64(v)
			case fieldMod:
				r.Mod = int64(v)
			case fieldVersion:
				r.Version = int64(v)
			case fieldLease:
				r.Lease = int64(v)
			}
		case wireBytes:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return ErrMalformed
			}
			v := b[n : n+int(size) : n+int(size)]
			b = b[n+int(size):]
			switch tag >> 3 {
			case fieldKey:
				r.Key = v
			case fieldValue:
				r.Value = v
			}
		case wireFixed64:
			if len(b) < 8 {
				return ErrMalformed
			}
			b = b[8:]
		case wireFixed32:
			if len(b) < 4 {
				return ErrMalformed
			}
			b = b[4:]
		default:
			return ErrMalformed
		}
	}
	return nil
}

// LeadingKey returns the key of an encoded record, which is its first field, and the offset of its
// end.
func LeadingKey(b []byte) (key []byte, end int, err error) {
	if len(b) == 0 || b[0] != fieldKey<<3|wireBytes {
		return nil, 0, ErrMalformed
	}
	size, n := binary.Uvarint(b[1:])
	if n <= 0 || size > uint64(len(b)-1-n) {
		return nil, 0, ErrMalformed
	}
	end = 1 + n + int(size)
	return b[1+n : end], end, nil
}

// FrameSize returns the number of bytes of the head of a framed record of n bytes.
func FrameSize(n int) int { return 1 + (bits.Len(uint(n)|1)+6)/7 }
