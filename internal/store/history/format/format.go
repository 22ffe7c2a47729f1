package format

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"vigil/internal/kv"
)

const (
	// Version is the version of the format that this program reads and writes.
	Version = 1

	HeaderSize       = 64
	BatchHeaderSize  = 48
	RecordHeaderSize = 28

	headerMagic = "VIGILHST"
	BatchMagic  = "VgBa"

	// MaxRecord is the limit of a record's data: its length has 28 bits.
	MaxRecord = 1<<28 - 1
	// MaxSegment is the limit of a segment's size: offsets have 32 bits.
	MaxSegment = 3 << 30
)

// Castagnoli is the table of CRC-32C, which the processor computes.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// LE is the byte order of all numbers.
var LE = binary.LittleEndian

// CorruptError is damage: bytes on disk that differ from what was written. errors.Is(err,
// kv.ErrCorrupt) holds.
type CorruptError struct {
	File string
	// Offset is where in the file the damaged piece begins.
	Offset int64
	// Length is the size of that piece, 0 if it is not known.
	Length int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("history: %s at offset %d: %s: %s", e.File, e.Offset,
		kv.ErrCorrupt, e.Reason)
}

// Is makes errors.Is(err, kv.ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == kv.ErrCorrupt }

// Corrupt returns a CorruptError.
func Corrupt(file string, off int64, format string, args ...any) error {
	return &CorruptError{File: file, Offset: off, Reason: fmt.Sprintf(format, args...)}
}

// Applied is a position of the raft log.
type Applied struct{ Term, Index uint64 }
