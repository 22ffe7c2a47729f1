package pbfield

import (
	"encoding/binary"
	"errors"
	"unsafe"
)

// The two ways in which a message can be malformed. Their texts are the generated code's.
var (
	// ErrInvalid: the bytes are not an encoding of a message.
	ErrInvalid = errors.New("proto: cannot parse invalid wire-format data")
	// ErrTooDeep: messages nest deeper than MaxDepth.
	ErrTooDeep = errors.New("proto: exceeded maximum recursion depth")
)

// MaxDepth is how deep messages may nest. The outermost message is the first level.
const MaxDepth = 10000

// The wire types of protocol buffers.
const (
	typeVarint  = 0
	typeFixed64 = 1
	typeBytes   = 2
	typeStart   = 3
	typeEnd     = 4
	typeFixed32 = 5
)

const (
	maxNumber = 1<<29 - 1 // the largest number of a field
	// firstTag stands for the tag of the first field before Next, and malformedTag for a tag that
	// cannot be read: they belong to no field.
	firstTag     = 1
	malformedTag = 2
)

// Reader reads the fields of one message. One goroutine uses it.
type Reader struct {
	rest  []byte // after the tag of the current field
	tag   uint64 // of the current field; 0 at the end and after an error
	taken bool   // a method has taken a field since Next
	err   error
}

// Read returns a reader of an encoded message. Next moves to its first field.
func Read(b []byte) Reader { return Reader{rest: b, tag: firstTag} }

// Next reports whether there are fields left. It skips the current field if no method has taken a
// field since the last call of Next: the message has no such field.
func (r *Reader) Next() bool {
	if !r.taken {
		r.skip()
	}
	r.taken = false
	return r.tag != 0
}

// AtEnd reports whether there is no field left, or an error has ended the reading. A loop may stop
// then before it looks for rare fields.
func (r *Reader) AtEnd() bool { return r.tag == 0 }

// Err returns the error that has ended the reading, nil at the end of the message.
func (r *Reader) Err() error { return r.err }

// Check ends the reading if err is set, for instance by the reader of an embedded message.
func (r *Reader) Check(err error) {
	if err != nil && r.err == nil {
		r.err, r.tag = err, 0
	}
}

// Bytes reads field num if it is the current one. The bytes are a part of the message, nil if there
// are none.
func (r *Reader) Bytes(num int, p *[]byte) {
	if r.tag == uint64(num)<<3|typeBytes {
		*p, _ = r.takeBytes()
	}
}

// Text reads a string that shares the memory of the message. It need not be UTF-8.
func (r *Reader) Text(num int, p *string) {
	if r.tag == uint64(num)<<3|typeBytes {
		b, _ := r.takeBytes()
		*p = unsafe.String(unsafe.SliceData(b), len(b))
	}
}

// Message reads an embedded message. It returns false if that is not the current field, so a loop
// reads a list of messages.
func (r *Reader) Message(num int, body *[]byte) (ok bool) {
	if r.tag == uint64(num)<<3|typeBytes {
		*body, ok = r.takeBytes()
	}
	return ok
}

// Varint reads a number. It returns false if that is not the current field.
func (r *Reader) Varint(num int) (v uint64, ok bool) {
	if r.tag == uint64(num)<<3|typeVarint {
		v, ok = r.takeVarint()
	}
	return v, ok
}

// Bool reads a boolean.
func (r *Reader) Bool(num int, p *bool) {
	if r.tag == uint64(num)<<3|typeVarint {
		v, _ := r.takeVarint()
		*p = v != 0
	}
}

// Int reads a number or an enum.
func Int[T integer](r *Reader, num int, p *T) {
	if r.tag == uint64(num)<<3|typeVarint {
		v, _ := r.takeVarint()
		*p = T(v)
	}
}

type integer interface {
	~int64 | ~uint64 | ~int32 | ~uint8
}

// Ints reads a list of numbers, packed or not, and calls f with each.
func (r *Reader) Ints(num int, f func(v uint64)) {
	for v, ok := r.Varint(num); ok; v, ok = r.Varint(num) {
		f(v)
	}
	var packed []byte
	for r.Message(num, &packed) {
		for len(packed) > 0 {
			v, n := varint(packed)
			if n <= 0 {
				r.Check(ErrInvalid)
				return
			}
			f(v)
			packed = packed[n:]
		}
	}
}

// Count returns how many more fields from the current one on are embedded messages num, so that
// memory for all is allocated at once. It does not count after a malformed field.
func (r *Reader) Count(num int) (n int) {
	for c := *r; c.Next(); {
		if c.tag == uint64(num)<<3|typeBytes {
			n++
		}
	}
	return n
}

// readTag reads the tag of the field at the start of b.
func (r *Reader) readTag(b []byte) {
	if len(b) > 0 && b[0]-1<<3 < 0x80-1<<3 {
		r.tag, r.rest = uint64(b[0]), b[1:]
		return
	}
	r.tag = 0
	if len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag < 1<<3 {
			tag, n = malformedTag, 0
		}
		r.tag, r.rest = tag, b[n:]
	}
}

func (r *Reader) takeVarint() (v uint64, ok bool) {
	b := r.rest
	n := 1
	if len(b) > 0 && b[0] < 0x80 {
		v = uint64(b[0])
	} else if v, n = binary.Uvarint(b); n <= 0 {
		r.Check(ErrInvalid)
		return 0, false
	}
	r.taken = true
	r.readTag(b[n:])
	return v, true
}

func (r *Reader) takeBytes() (v []byte, ok bool) {
	b := r.rest
	n, length := 1, uint64(0)
	if len(b) > 0 && b[0] < 0x80 {
		length = uint64(b[0])
	} else {
		length, n = binary.Uvarint(b)
	}
	if n <= 0 || length > uint64(len(b)-n) {
		r.Check(ErrInvalid)
		return nil, false
	}
	end := n + int(length)
	r.taken = true
	r.readTag(b[end:])
	if length == 0 {
		return nil, true
	}
	return b[n:end:end], true
}

// skip passes over the current field, or moves to the first one.
func (r *Reader) skip() {
	switch r.tag {
	case 0:
	case firstTag:
		r.readTag(r.rest)
	default:
		n := fieldSize(r.tag, r.rest, MaxDepth)
		if n <= 0 {
			r.Check(ErrInvalid)
			return
		}
		r.readTag(r.rest[n:])
	}
}

// varint reads a number at the start of b. n is the number of bytes that it takes, 0 or less if
// there is none.
func varint(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// fieldSize returns the number of bytes of a field after its tag, 0 or less if it is malformed.
func fieldSize(tag uint64, b []byte, depth int) int {
	if num := tag >> 3; num < 1 || num > maxNumber {
		return 0
	}
	switch tag & 7 {
	case typeVarint:
		_, n := varint(b)
		return n
	case typeFixed64:
		return fixedSize(b, 8)
	case typeFixed32:
		return fixedSize(b, 4)
	case typeBytes:
		length, n := varint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return 0
		}
		return n + int(length)
	case typeStart:
		return groupSize(tag, b, depth)
	}
	return 0
}

func fixedSize(b []byte, n int) int {
	if len(b) < n {
		return 0
	}
	return n
}

// groupSize returns the number of bytes of a group and of the tag that ends it. Inside a group the
// generated code lets field numbers be a little larger than elsewhere.
func groupSize(start uint64, b []byte, depth int) int {
	if depth < 0 {
		return 0
	}
	at := 0
	for {
		tag, n := varint(b[at:])
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
			n = groupSize(tag, b[at:], depth-1)
		} else {
			n = fieldSize(1<<3|tag&7, b[at:], depth-1)
		}
		if n <= 0 {
			return 0
		}
		at += n
	}
}
