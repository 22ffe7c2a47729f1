package etcdwal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// errFrame: a frame is longer than the rest of the file.
var errFrame = errors.New("a record is longer than the file")

// frame reads a frame and returns its record and the length of the frame, 0 at the end.
func frame(in *bufio.Reader, left int64) (b []byte, n int64, err error) {
	if left < frameSize {
		return nil, 0, nil
	}
	var head [frameSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, 0, err
	}
	size, pad := lengths(head[:])
	if head == ([frameSize]byte{}) {
		return nil, 0, nil // preallocated space
	}
	if size > maxRecord || size+pad > left-frameSize {
		return nil, 0, errFrame
	}
	b = make([]byte, size+pad)
	if _, err := io.ReadFull(in, b); err != nil {
		return nil, 0, err
	}
	return b[:size], frameSize + size + pad, nil
}

// lengths returns the lengths of a record and of the padding after it, from the head of a frame.
func lengths(head []byte) (size, pad int64) {
	field := binary.LittleEndian.Uint64(head)
	if field>>63 != 0 {
		pad = int64(field >> 56 & 7)
	}
	return int64(field &^ (0xff << 56)), pad
}

// The fields of the data of a snapshot's record, and of the metadata.
const (
	snapshotIndex   = 1
	snapshotTerm    = 2
	metadataCluster = 2
)

// numbers returns the values of fields of a message that are numbers, 0 for those that it does not
// have.
func numbers(b []byte, fields ...protowire.Number) ([]uint64, error) {
	out := make([]uint64, len(fields))
	for len(b) > 0 {
		num, wire, n := protowire.ConsumeField(b)
		if n < 0 {
			return out, errRecord
		}
		if i := slices.Index(fields, num); i >= 0 && wire == protowire.VarintType {
			_, _, k := protowire.ConsumeTag(b)
			out[i], _ = protowire.ConsumeVarint(b[k:])
		}
		b = b[n:]
	}
	return out, nil
}

// The fields of a record.
const (
	fieldType = 1 + iota
	fieldCRC
	fieldData
)

var errRecord = errors.New("malformed record")

// parse decodes a record.
func parse(b []byte) (typ uint64, crc uint32, data []byte, err error) {
	for len(b) > 0 {
		num, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, 0, nil, errRecord
		}
		b = b[n:]
		switch {
		case wire == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return 0, 0, nil, errRecord
			}
			b = b[n:]
			switch num {
			case fieldType:
				typ = v
			case fieldCRC:
				crc = uint32(v)
			}
		case wire == protowire.BytesType && num == fieldData:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return 0, 0, nil, errRecord
			}
			data, b = v, b[n:]
		default:
			return 0, 0, nil, errRecord
		}
	}
	return typ, crc, data, nil
}
