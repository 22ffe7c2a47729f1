package mvcc

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// record is a mvccpb.KeyValue. Decoded ones alias the encoding.
type record struct {
	key, value                  []byte
	create, mod, version, lease int64
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

// The wire types of Protocol Buffers that may occur.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

var errRecord = errors.New("mvcc: malformed record")

// append appends the encoding of r. Fields without a value are left out, as proto3 does.
func (r *record) append(dst []byte) []byte {
	dst = appendBytes(dst, fieldKey, r.key)
	dst = appendInt(dst, fieldCreate, r.create)
	dst = appendInt(dst, fieldMod, r.mod)
	dst = appendInt(dst, fieldVersion, r.version)
	dst = appendBytes(dst, fieldValue, r.value)
	return appendInt(dst, fieldLease, r.lease)
}

// size returns the size of the encoding.
func (r *record) size() int {
	n := 0
	for _, b := range [...][]byte{r.key, r.value} {
		if len(b) > 0 {
			n += frameSize(len(b)) + len(b)
		}
	}
	for _, v := range [...]int64{r.create, r.mod, r.version, r.lease} {
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

// keyAt returns where the key lies in an encoding that append made of a record with that key.
func keyAt(key []byte) (from, to int) {
	if len(key) == 0 {
		return 0, 0
	}
	from = 1 + (bits.Len(uint(len(key)))+6)/7
	return from, from + len(key)
}

// decode reads an encoding. Fields that it does not know are skipped; of a field that occurs twice
// the last one counts.
func (r *record) decode(b []byte) error {
	*r = record{}
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
			return errRecord
		}
		b = b[n:]
		switch tag & 7 {
		case wireVarint:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return errRecord
			}
			b = b[n:]
			switch tag >> 3 {
			case fieldCreate:
				r.create = int64(v)
			case fieldMod:
				r.mod = int64(v)
			case fieldVersion:
				r.version = int64(v)
			case fieldLease:
				r.lease = int64(v)
			}
		case wireBytes:
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return errRecord
			}
			v := b[n : n+int(size) : n+int(size)]
			b = b[n+int(size):]
			switch tag >> 3 {
			case fieldKey:
				r.key = v
			case fieldValue:
				r.value = v
			}
		case wireFixed64:
			if len(b) < 8 {
				return errRecord
			}
			b = b[8:]
		case wireFixed32:
			if len(b) < 4 {
				return errRecord
			}
			b = b[4:]
		default:
			return errRecord
		}
	}
	return nil
}

// leadingKey returns the key of an encoded record, which is its first field, and where it ends.
func leadingKey(b []byte) (key []byte, end int, err error) {
	if len(b) == 0 || b[0] != fieldKey<<3|wireBytes {
		return nil, 0, errRecord
	}
	size, n := binary.Uvarint(b[1:])
	if n <= 0 || size > uint64(len(b)-1-n) {
		return nil, 0, errRecord
	}
	end = 1 + n + int(size)
	return b[1+n : end], end, nil
}

// frameSize returns how many bytes the head of a framed record of n bytes takes.
func frameSize(n int) int { return 1 + (bits.Len(uint(n)|1)+6)/7 }
