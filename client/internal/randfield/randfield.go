// Package randfield makes random fields of messages, for the tests that compare encodings with the
// generated code.
package randfield

import "math/rand/v2"

// Gen makes random fields.
type Gen struct{ *rand.Rand }

// Flag returns a boolean.
func (g Gen) Flag() bool { return g.IntN(2) == 0 }

// Number returns a number, often one whose encoding is short, negative or absent.
func (g Gen) Number() int64 {
	switch g.IntN(4) {
	case 0:
		return 0
	case 1:
		return g.Int64N(300)
	case 2:
		return -g.Int64N(300)
	}
	return int64(g.Uint64())
}

// Data returns bytes, often of a length at which the encoding of the length grows.
func (g Gen) Data() []byte {
	b := make([]byte, []int{0, 1, 3, 40, 127, 128, 300}[g.IntN(7)])
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}
