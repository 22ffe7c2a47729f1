package history

import (
	"errors"
	"fmt"
	"hash/crc32"

	"vigil/internal/bitflip"
	"vigil/internal/vfs"
)

// pinpoint makes the error about a damaged piece of a segment more exact: if one flipped bit explains
// it, that bit; else the first record of a batch that is damaged. seed is the checksum of the header.
func pinpoint(file vfs.File, seed uint32, err error) error {
	var c *CorruptError
	if !errors.As(err, &c) {
		return err
	}
	foot := readFooter(file, c.File, seed)
	// The piece [off, off+n) has its checksum at sum.
	off, n, sum, begin := c.Offset, int64(0), int64(0), seed
	head := make([]byte, batchHeaderSize)
	switch {
	case c.Offset == 0:
		n, sum, begin = headerSize-4, headerSize-4, 0
	case foot != nil && c.Offset == int64(foot.bodyEnd):
		n, sum = foot.tableSize(), -1
	case readFull(file, c.File, head, off) != nil:
		return err
	case string(head[:4]) == footerMagic:
		n, sum = footerSize-4, off+footerSize-4
	default:
		h, ok := decodeBatchHeader(head, bitflip.Limit)
		if !ok {
			return err
		}
		off, n, sum = off+4, int64(h.length)-4, off
	}
	b := make([]byte, n)
	if n > bitflip.Limit || readFull(file, c.File, b, off) != nil {
		return err
	}
	want := make([]byte, 4)
	if sum < 0 {
		le.PutUint32(want, foot.tableSum)
	} else if readFull(file, c.File, want, sum) != nil {
		return err
	}
	got := crc32.Update(begin, castagnoli, b)
	exact := func(at int64, bit int) error {
		return &CorruptError{File: c.File, Offset: at, Reason: fmt.Sprintf("bit %d is flipped (%s)", bit%8, c.Reason)}
	}
	switch bit := bitflip.Find(b, got, le.Uint32(want)); {
	case bit >= 0:
		return exact(off+int64(bit/8), bit)
	case bit != bitflip.None && sum >= 0:
		return exact(sum+int64((-1-bit)/8), -1-bit)
	}
	if sum != off-4 || got == le.Uint32(want) {
		return err
	}
	// The records of a batch. One that is cut says nothing: the length may be what is wrong.
	at := batchHeaderSize - 4
	for range le.Uint32(head[16:]) {
		_, size, derr := decodeRecord(b[at:])
		if derr != nil {
			break
		}
		if !checkRecord(b[at : at+size]) {
			return &CorruptError{File: c.File, Offset: off + int64(at), Reason: c.Reason + "; this record is the first bad one"}
		}
		at += size
	}
	return err
}

// readFooter returns the footer of a sealed segment, nil if there is no good one.
func readFooter(file vfs.File, path string, seed uint32) *footer {
	size, err := file.Size()
	b := make([]byte, footerSize)
	if err != nil || size < headerSize+footerSize || readFull(file, path, b, size-footerSize) != nil {
		return nil
	}
	foot, err := decodeFooter(b, seed, size)
	if err != nil {
		return nil
	}
	return &foot
}
