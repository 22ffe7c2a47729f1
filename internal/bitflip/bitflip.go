// Package bitflip finds the bit whose flip explains a checksum that does not match.
package bitflip

import (
	"hash/crc32"
	"math/bits"
)

// Limit is the maximum length for Find. Up to it, the chance of a wrong answer for damage of more
// than one bit is about 1 %, and the search takes a tenth of a second.
const Limit = 4 << 20

// None is the result of Find if no single bit explains the difference.
const None = -1 << 62

// Find explains why the CRC-32C of b is got rather than want. It returns the number of the bit of
// b, counted from the lowest bit of its first byte, whose flip changes the checksum from got to
// want. If want itself differs from got in one bit, it returns -1 minus the number of that bit. It
// returns None in all other cases and if b is longer than Limit.
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
