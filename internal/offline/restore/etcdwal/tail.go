package etcdwal

import (
	"bufio"
	"errors"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"vigil/internal/vfs"
)

// A crash during a write leaves an incomplete record: some of its sectors were not written and are
// zero, or the file ends in it, because a file grows beyond its preallocated size only by the
// record that is written. Neither is a proof: with a flipped bit in its length, an intact record
// extends over the bytes after it, into the preallocated zeros or beyond the file. The length of a
// record is stored twice, before it and in its own fields. So a record is torn if both lengths are
// equal, or the fields are in the missing part, and only zeros follow it.

// sector is the unit that a disk writes completely or not at all.
const sector = 512

// torn reports whether the frame at an offset is proven to be a record that a crash has left
// incomplete. The frame was read last: in is at its end, unless the frame is longer than the file.
func torn(f vfs.File, in *bufio.Reader, off, size int64) (bool, error) {
	var head [frameSize]byte
	if _, err := f.ReadAt(head[:], off); err != nil {
		return false, err
	}
	length, pad := lengths(head[:])
	if length > maxRecord || pad != (frameSize-length%frameSize)%frameSize {
		return false, nil
	}
	cut := length+pad > size-off-frameSize
	b := make([]byte, min(length+pad, size-off-frameSize))
	if _, err := f.ReadAt(b, off+frameSize); err != nil && (err != io.EOF || len(b) > 0) {
		return false, err
	}
	missing := zeroSector(b[:min(length, int64(len(b)))], off+frameSize)
	if missing != 0 {
		own, err := ownLength(b)
		if err == errRecord || err == nil && own != length || err == io.ErrUnexpectedEOF && !cut {
			return false, nil
		}
	}
	if cut {
		return true, nil
	}
	if missing < 0 {
		return false, nil
	}
	return empty(in)
}

// zeroSector returns the first sector of a record that is all zeros, -1 for none. off is the offset
// of the record.
func zeroSector(b []byte, off int64) int {
	for i := 0; len(b) > 0; i++ {
		n := min(int(sector-off%sector), len(b))
		zero := true
		for _, c := range b[:n] {
			zero = zero && c == 0
		}
		if zero {
			return i
		}
		b, off = b[n:], off+int64(n)
	}
	return -1
}

// ownLength returns the length of a record from its fields, up to the end of its data. It fails
// with io.ErrUnexpectedEOF if the fields are cut off, and with errRecord if they are malformed.
func ownLength(b []byte) (int64, error) {
	all := int64(len(b))
	for {
		num, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, endOr(n)
		}
		if num > fieldData || num < fieldData && wire != protowire.VarintType ||
			num == fieldData && wire != protowire.BytesType {
			return 0, errRecord
		}
		b = b[n:]
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return 0, endOr(n)
		}
		b = b[n:]
		if num == fieldData {
			if v > maxRecord {
				return 0, errRecord
			}
			return all - int64(len(b)) + int64(v), nil
		}
	}
}

// endOr returns io.ErrUnexpectedEOF for a field that is cut off, and errRecord for a malformed one.
func endOr(n int) error {
	if errors.Is(protowire.ParseError(n), io.ErrUnexpectedEOF) {
		return io.ErrUnexpectedEOF
	}
	return errRecord
}

// empty reports whether only zeros are left.
func empty(in *bufio.Reader) (bool, error) {
	for {
		if _, err := in.Peek(1); err == io.EOF {
			return true, nil
		} else if err != nil {
			return false, err
		}
		b, _ := in.Peek(in.Buffered())
		for _, c := range b {
			if c != 0 {
				return false, nil
			}
		}
		if _, err := in.Discard(len(b)); err != nil {
			return false, err
		}
	}
}
