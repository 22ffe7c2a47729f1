package wire

import (
	"encoding/binary"
	"errors"
	"time"
	"unsafe"
)

// ErrMalformed means that the bytes of a server are not an encoding of the message.
var ErrMalformed = errors.New("malformed message from the server")

// Fields iterates over the fields of a message.
type Fields struct {
	rest      []byte
	malformed bool
	// Num and Type describe the current field. Varint is its number, Bytes the content of a field of bytes.
	Num    int
	Type   int
	Varint uint64
	Bytes  []byte
}

// Read returns the fields of an encoded message.
func Read(b []byte) Fields { return Fields{rest: b} }

// Next moves to the next field. It returns false at the end, and if the rest is malformed.
func (f *Fields) Next() bool {
	if len(f.rest) == 0 || f.malformed {
		return false
	}
	tag := uint64(f.rest[0])
	if tag < 0x80 {
		f.rest = f.rest[1:]
	} else {
		var ok bool
		if tag, ok = f.varint(); !ok {
			return false
		}
	}
	f.Num, f.Type = int(tag>>3), int(tag&7)
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		f.malformed = true
		return false
	}
	ok := true
	switch f.Type {
	case TypeVarint:
		f.Varint, ok = f.varint()
	case TypeBytes:
		var n uint64
		if n, ok = f.varint(); !ok {
			return false
		}
		if n > uint64(len(f.rest)) {
			f.malformed = true
			return false
		}
		f.Bytes, f.rest = f.rest[:n:n], f.rest[n:]
	case typeFixed64:
		ok = f.skip(8)
	case typeFixed32:
		ok = f.skip(4)
	default: // no message of the API has groups
		f.malformed = true
		return false
	}
	return ok
}

func (f *Fields) varint() (uint64, bool) {
	v, n := binary.Uvarint(f.rest)
	if n <= 0 {
		f.malformed = true
		return 0, false
	}
	f.rest = f.rest[n:]
	return v, true
}

func (f *Fields) skip(n int) bool {
	if len(f.rest) < n {
		f.malformed = true
		return false
	}
	f.rest = f.rest[n:]
	return true
}

// Is reports whether the current field has this number and type. A field of another type is skipped, like one with an
// unknown number.
func (f *Fields) Is(num, typ int) bool { return f.Num == num && f.Type == typ }

// Check ends the iteration if the current field is malformed.
func (f *Fields) Check(err error) {
	if err != nil {
		f.malformed = true
	}
}

// Err returns ErrMalformed if the message is malformed.
func (f *Fields) Err() error {
	if f.malformed {
		return ErrMalformed
	}
	return nil
}

// Text returns bytes as a string that shares their memory. Nothing changes the bytes: the parts of a message's buffer
// do not overlap, and none can grow into the next.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Count returns how many fields of bytes have this number, so that memory for all is allocated at once.
func Count(b []byte, num int) (n int) {
	f := Read(b)
	for f.Next() {
		if f.Is(num, TypeBytes) {
			n++
		}
	}
	return n
}

// SecondsOf returns a time in seconds, rounded up.
func SecondsOf(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}

// Seconds returns a time of the API, which is in seconds. Times that a Duration does not hold are the longest that it does.
func Seconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(max(-most, min(n, most))) * time.Second
}
