package inspect

import (
	"errors"
	"fmt"
	"hash/crc32"

	"vigil/internal/bitflip"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// pinpoint makes the error about a damaged piece of a segment more exact: if one flipped bit
// explains it, that bit; else the first record of a batch that is damaged. seed is the checksum of
// the header.
func pinpoint(file vfs.File, seed uint32, err error) error {
	var c *format.CorruptError
	if !errors.As(err, &c) {
		return err
	}
	foot := readFooter(file, c.File, seed)
	// The piece [off, off+n) has its checksum at sum.
	off, n, sum, begin := c.Offset, int64(0), int64(0), seed
	head := make([]byte, format.BatchHeaderSize)
	switch {
	case c.Offset == 0:
		n, sum, begin = format.HeaderSize-4, format.HeaderSize-4, 0
	case foot != nil && c.Offset == int64(foot.BodyEnd):
		n, sum = foot.TableSize(), -1
	case segfile.ReadFull(file, c.File, head, off) != nil:
		return err
	case string(head[:4]) == format.FooterMagic:
		n, sum = format.FooterSize-4, off+format.FooterSize-4
	default:
		h, ok := format.DecodeBatchHeader(head, bitflip.Limit)
		if !ok {
			return err
		}
		off, n, sum = off+4, int64(h.Length)-4, off
	}
	b := make([]byte, n)
	if n > bitflip.Limit || segfile.ReadFull(file, c.File, b, off) != nil {
		return err
	}
	want := make([]byte, 4)
	if sum < 0 {
		format.LE.PutUint32(want, foot.TableSum)
	} else if segfile.ReadFull(file, c.File, want, sum) != nil {
		return err
	}
	got := crc32.Update(begin, format.Castagnoli, b)
	exact := func(at int64, bit int) error {
		return &format.CorruptError{File: c.File, Offset: at,
			Reason: fmt.Sprintf("bit %d is flipped (%s)", bit%8, c.Reason)}
	}
	switch bit := bitflip.Find(b, got, format.LE.Uint32(want)); {
	case bit >= 0:
		return exact(off+int64(bit/8), bit)
	case bit != bitflip.None && sum >= 0:
		return exact(sum+int64((-1-bit)/8), -1-bit)
	}
	if sum != off-4 || got == format.LE.Uint32(want) {
		return err
	}
	// The records of a batch. One that is cut says nothing: the length may be what is wrong.
	at := format.BatchHeaderSize - 4
	for range format.LE.Uint32(head[16:]) {
		_, size, derr := format.DecodeRecord(b[at:])
		if derr != nil {
			break
		}
		if !format.CheckRecord(b[at : at+size]) {
			return &format.CorruptError{File: c.File, Offset: off + int64(at),
				Reason: c.Reason + "; this record is the first bad one"}
		}
		at += size
	}
	return err
}

// readFooter returns the footer of a sealed segment, nil if there is no good one.
func readFooter(file vfs.File, path string, seed uint32) *format.Footer {
	size, err := file.Size()
	b := make([]byte, format.FooterSize)
	if err != nil || size < format.HeaderSize+format.FooterSize ||
		segfile.ReadFull(file, path, b, size-format.FooterSize) != nil {
		return nil
	}
	foot, err := format.DecodeFooter(b, seed, size)
	if err != nil {
		return nil
	}
	return &foot
}
