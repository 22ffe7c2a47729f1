// Package bitflip finds the bit whose flip explains a checksum that does not match.
package bitflip

import (
	"hash/crc32"
	"math/bits"
)

// Limit is the most bytes that Find looks through: up to there a wrong answer for damage of more
// than one bit is about one in a hundred, and the search takes a tenth of a second.
const Limit = 4 << 20

// None is what Find returns if no single bit explains the difference.
const None = -1 << 62

// Find returns the number of the one bit of b, counted from the lowest bit of its first byte, that
// would have to be flipped for the CRC-32C of b to be want when it is got. If instead it is want
// that has a flipped bit, the result is -1 minus the number of that bit. It is None if neither is
// so or b is longer than Limit.
//
// A CRC is linear: the difference of two checksums depends only on which bits differ and how far
// from the end they are. It is computed for one bit after another, from the last one on.
func Find(b []byte, got, want uint32) int {
	diff := got ^ want
	if diff == 0 || len(b) > Limit {
		return None
	}
	if bits.OnesCount32(diff) == 1 {
		return -1 - bits.TrailingZeros32(diff)
	}
	d := uint32(crc32.Castagnoli)
	for i := 8*len(b) - 1; i >= 0; i-- {
		if d == diff {
			return i
		}
		d = d>>1 ^ crc32.Castagnoli&-(d&1)
	}
	return None
}
