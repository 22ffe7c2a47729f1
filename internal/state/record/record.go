// Package record reads and writes the fields of the small records in which the state of a cluster
// is stored.
//
// Integers are encoding/binary's in their shortest form, so that one value has one encoding. Bytes
// and texts are their length as uvarint and the bytes.
package record

import (
	"encoding/binary"
)

// AppendBytes appends bytes or a text.
func AppendBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// Reader reads the fields of a record. After a malformed field all further fields are zero, and
// Complete returns false.
type Reader struct {
	rest []byte
	bad  bool
}

// NewReader returns a Reader of b.
func NewReader(b []byte) *Reader { return &Reader{rest: b} }

// Fail marks the record as malformed.
func (r *Reader) Fail() { r.bad, r.rest = true, nil }

// Complete reports whether the whole record was read and no field was malformed.
func (r *Reader) Complete() bool { return !r.bad && len(r.rest) == 0 }

// Failed reports whether a field was malformed.
func (r *Reader) Failed() bool { return r.bad }

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if len(r.rest) == 0 {
		r.Fail()
		return 0
	}
	v := r.rest[0]
	r.rest = r.rest[1:]
	return v
}

// Uvarint reads an unsigned integer.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || n > 1 && r.rest[n-1] == 0 {
		r.Fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// Varint reads a signed integer.
func (r *Reader) Varint() int64 {
	v := r.Uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// Count reads a number of bytes, or of elements that take at least one byte each.
func (r *Reader) Count() int {
	n := r.Uvarint()
	if n > uint64(len(r.rest)) {
		r.Fail()
		return 0
	}
	return int(n)
}

// Text reads a text, or bytes as a text.
func (r *Reader) Text() string {
	n := r.Count()
	v := string(r.rest[:n])
	r.rest = r.rest[n:]
	return v
}

// Rest reads all remaining bytes as a text.
func (r *Reader) Rest() string {
	v := string(r.rest)
	r.rest = nil
	return v
}
