package format

import (
	"fmt"
	"hash/crc32"
)

// BatchHeader begins a batch.
type BatchHeader struct {
	// Sum covers the batch after itself to its end.
	Sum uint32
	// Length is the length of the whole batch, a multiple of 8.
	Length uint32
	// Prev is the sum of the batch before, in this segment or the one before.
	Prev    uint32
	Records uint32
	// Synced is the offset up to which this segment was durable when the batch was written.
	Synced  uint32
	Applied Applied
	// Revision is the newest main revision, this batch included.
	Revision int64
}

// Encode writes the header into b, a whole batch, and its checksum.
func (h *BatchHeader) Encode(b []byte, seed uint32) {
	copy(b[4:], BatchMagic)
	LE.PutUint32(b[8:], h.Length)
	LE.PutUint32(b[12:], h.Prev)
	LE.PutUint32(b[16:], h.Records)
	LE.PutUint32(b[20:], h.Synced)
	LE.PutUint64(b[24:], h.Applied.Term)
	LE.PutUint64(b[32:], h.Applied.Index)
	LE.PutUint64(b[40:], uint64(h.Revision))
	h.Sum = crc32.Update(seed, Castagnoli, b[4:h.Length])
	LE.PutUint32(b, h.Sum)
}

// DecodeBatchHeader decodes a header without checking its checksum. It returns false if b does not
// begin with one whose batch fits into room bytes.
func DecodeBatchHeader(b []byte, room int64) (BatchHeader, bool) {
	if len(b) < BatchHeaderSize || string(b[4:8]) != BatchMagic {
		return BatchHeader{}, false
	}
	h := BatchHeader{
		Sum:      LE.Uint32(b),
		Length:   LE.Uint32(b[8:]),
		Prev:     LE.Uint32(b[12:]),
		Records:  LE.Uint32(b[16:]),
		Synced:   LE.Uint32(b[20:]),
		Applied:  Applied{Term: LE.Uint64(b[24:]), Index: LE.Uint64(b[32:])},
		Revision: int64(LE.Uint64(b[40:])),
	}
	ok := h.Length >= BatchHeaderSize && h.Length%8 == 0 && int64(h.Length) <= room
	return h, ok
}

// Check checks the checksum of b, the whole batch.
func (h *BatchHeader) Check(b []byte, seed uint32) bool {
	return h.Sum == crc32.Update(seed, Castagnoli, b[4:h.Length])
}

// WalkBatch calls fn with every record of b, a whole batch whose checksum matches, and its offset
// in the batch.
func WalkBatch(b []byte, h *BatchHeader, fn func(off int, r Record) error) error {
	off := BatchHeaderSize
	for n := range h.Records {
		r, size, err := DecodeRecord(b[off:h.Length])
		if err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		if !CheckRecord(b[off : off+size]) {
			return fmt.Errorf("record %d: %w", n, ErrRecordSum)
		}
		if err := fn(off, r); err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		off += size
	}
	if int(h.Length)-off >= 8 {
		return errBatchCount
	}
	for _, c := range b[off:h.Length] {
		if c != 0 {
			return errBatchEnd
		}
	}
	return nil
}

// AddSum adds the checksum of b, a batch, to the checksum over those of a segment.
func AddSum(body uint32, b []byte) uint32 { return crc32.Update(body, Castagnoli, b[:4]) }

// Align8 rounds n up to a multiple of 8.
func Align8(n int64) int64 { return (n + 7) &^ 7 }
