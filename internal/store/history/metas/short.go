package metas

import "vigil/internal/store/history/format"

// Records of leases are many and small. They are kept in arrays of a fixed size: the garbage
// collector does not visit maps without pointers, however large they are.

// shortText is a text of up to 15 bytes; the bytes after it are 0.
type shortText struct {
	text [15]byte
	size uint8
}

// shortKey returns a key; it returns false if the key is too long.
func shortKey(key []byte) (s shortText, ok bool) {
	if len(key) > len(s.text) {
		return s, false
	}
	s.size = uint8(copy(s.text[:], key))
	return s, true
}

// shortName returns bucket and key of a record; it returns false if the key is too long.
func shortName(m *format.Meta) (s shortText, ok bool) {
	if len(m.Key) >= len(s.text) {
		return s, false
	}
	s.text[0] = m.Bucket
	s.size = uint8(1 + copy(s.text[1:], m.Key))
	return s, true
}

func (s *shortText) bytes() []byte { return s.text[:s.size] }

// shortValue is a value of up to 23 bytes, which is more than a lease has.
type shortValue struct {
	data [23]byte
	size uint8
}

// makeValue returns a value; it returns false if the value is too long.
func makeValue(b []byte) (v shortValue, ok bool) {
	if len(b) > len(v.data) {
		return v, false
	}
	v.size = uint8(copy(v.data[:], b))
	return v, true
}

func (v *shortValue) bytes() []byte { return v.data[:v.size] }
