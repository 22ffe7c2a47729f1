package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"vigil/internal/kv"
)

// docs/formats/history.md has the diagrams of what is encoded here.
const (
	formatVersion = 1

	headerSize       = 64
	batchHeaderSize  = 48
	recordHeaderSize = 20

	headerMagic = "VIGILHST"
	batchMagic  = "VgBa"

	// maxRecord is the limit of a record's data: its length has 28 bits.
	maxRecord = 1<<28 - 1
	// maxSegment is the limit of a segment's size: offsets have 32 bits.
	maxSegment = 3 << 30
)

// castagnoli is the table of CRC32C, which the processor computes.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// CorruptError says where the bytes on disk are not what was written. errors.Is(err, kv.ErrCorrupt)
// holds.
type CorruptError struct {
	File string
	// Offset is where in the file the damaged piece begins.
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("history: %s at offset %d: %s: %s", e.File, e.Offset, kv.ErrCorrupt, e.Reason)
}

// Is makes errors.Is(err, kv.ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == kv.ErrCorrupt }

func corrupt(file string, off int64, format string, args ...any) error {
	return &CorruptError{File: file, Offset: off, Reason: fmt.Sprintf(format, args...)}
}

// header begins every segment. Its checksum is the seed of the checksums of everything behind it, so
// that nothing of another segment, member or life of the file passes for a part of this one.
type header struct {
	version   uint32
	clusterID uint64
	memberID  uint64
	id        uint64
	// salt is random, so that no client can write a value that looks like a batch of this segment.
	salt uint64
	sum  uint32
}

func (h *header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, headerMagic)
	le.PutUint32(b[8:], h.version)
	le.PutUint64(b[16:], h.clusterID)
	le.PutUint64(b[24:], h.memberID)
	le.PutUint64(b[32:], h.id)
	le.PutUint64(b[40:], h.salt)
	h.sum = crc32.Checksum(b[:headerSize-4], castagnoli)
	le.PutUint32(b[headerSize-4:], h.sum)
	return b
}

var (
	errHeaderMagic = errors.New("this is not a history segment")
	errHeaderSum   = errors.New("the checksum of the header does not match")
)

// decodeHeader decodes a header of any version: the first 64 bytes keep their layout, so that a
// newer format is told from a damaged one.
func decodeHeader(b []byte) (header, error) {
	if len(b) < headerSize || string(b[:8]) != headerMagic {
		return header{}, errHeaderMagic
	}
	h := header{
		version:   le.Uint32(b[8:]),
		clusterID: le.Uint64(b[16:]),
		memberID:  le.Uint64(b[24:]),
		id:        le.Uint64(b[32:]),
		salt:      le.Uint64(b[40:]),
		sum:       le.Uint32(b[headerSize-4:]),
	}
	if h.sum != crc32.Checksum(b[:headerSize-4], castagnoli) {
		return header{}, errHeaderSum
	}
	return h, nil
}

// batchHeader begins a batch.
type batchHeader struct {
	// sum covers the batch from behind itself to its end.
	sum uint32
	// length is that of the whole batch, a multiple of 8.
	length uint32
	// prev is the sum of the batch before, in this segment or the one before.
	prev    uint32
	records uint32
	// synced is the offset in this segment up to which it was durable when the batch was written.
	synced  uint32
	applied Applied
	// revision is the newest main revision, this batch included.
	revision int64
}

// encode writes the header into b, a whole batch, and its checksum.
func (h *batchHeader) encode(b []byte, seed uint32) {
	copy(b[4:], batchMagic)
	le.PutUint32(b[8:], h.length)
	le.PutUint32(b[12:], h.prev)
	le.PutUint32(b[16:], h.records)
	le.PutUint32(b[20:], h.synced)
	le.PutUint64(b[24:], h.applied.Term)
	le.PutUint64(b[32:], h.applied.Index)
	le.PutUint64(b[40:], uint64(h.revision))
	h.sum = crc32.Update(seed, castagnoli, b[4:h.length])
	le.PutUint32(b, h.sum)
}

// decodeBatchHeader decodes a header without looking at the checksum. It returns false if b does not
// begin with one whose batch fits into room bytes.
func decodeBatchHeader(b []byte, room int64) (batchHeader, bool) {
	if len(b) < batchHeaderSize || string(b[4:8]) != batchMagic {
		return batchHeader{}, false
	}
	h := batchHeader{
		sum:      le.Uint32(b),
		length:   le.Uint32(b[8:]),
		prev:     le.Uint32(b[12:]),
		records:  le.Uint32(b[16:]),
		synced:   le.Uint32(b[20:]),
		applied:  Applied{Term: le.Uint64(b[24:]), Index: le.Uint64(b[32:])},
		revision: int64(le.Uint64(b[40:])),
	}
	ok := h.length >= batchHeaderSize && h.length%8 == 0 && int64(h.length) <= room
	return h, ok
}

// check compares the checksum of b, the whole batch.
func (h *batchHeader) check(b []byte, seed uint32) bool {
	return h.sum == crc32.Update(seed, castagnoli, b[4:h.length])
}

// kind tells what a record is.
type kind uint8

const (
	kindPut kind = iota + 1
	kindTombstone
	kindMeta
	kindMetaDeletion
)

// record is a decoded record; data aliases what it was decoded from.
type record struct {
	kind kind
	rev  kv.Rev // zero for meta records
	data []byte
}

// putRecordHeader fills in the header of b, which is a record with its data in place.
func putRecordHeader(b []byte, k kind, rev kv.Rev) {
	le.PutUint32(b[4:], uint32(len(b)-recordHeaderSize)|uint32(k)<<28)
	le.PutUint64(b[8:], uint64(rev.Main))
	le.PutUint32(b[16:], uint32(rev.Sub))
	le.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
}

// recordSize returns the size that the record whose header begins b says it has.
func recordSize(b []byte) int { return recordHeaderSize + int(le.Uint32(b[4:])&maxRecord) }

var (
	errRecordShort = errors.New("a record is longer than what holds it")
	errRecordKind  = errors.New("a record is of an unknown kind")
	errRecordSum   = errors.New("the checksum of a record does not match")
	errRecordMeta  = errors.New("a meta record is malformed")
	errBatchCount  = errors.New("a batch does not hold the records it says")
	errBatchEnd    = errors.New("a batch does not end where its records do")
)

// decodeRecord decodes the record that begins b and returns its size. It does not look at the
// checksum.
func decodeRecord(b []byte) (r record, size int, err error) {
	if len(b) < recordHeaderSize || recordSize(b) > len(b) {
		return record{}, 0, errRecordShort
	}
	size = recordSize(b)
	r.kind = kind(b[7] >> 4)
	r.rev = kv.Rev{Main: int64(le.Uint64(b[8:])), Sub: int64(le.Uint32(b[16:]))}
	r.data = b[recordHeaderSize:size:size]
	switch r.kind {
	case kindPut, kindTombstone:
		if r.rev.Main <= 0 {
			return record{}, 0, errRecordKind
		}
	case kindMeta, kindMetaDeletion:
		if r.rev != (kv.Rev{}) {
			return record{}, 0, errRecordMeta
		}
	default:
		return record{}, 0, errRecordKind
	}
	return r, size, nil
}

// checkRecord compares the checksum of b, a whole record.
func checkRecord(b []byte) bool { return le.Uint32(b) == crc32.Checksum(b[4:], castagnoli) }

// walkBatch calls fn with every record of b, a whole batch whose checksum matches, and its offset in
// the batch.
func walkBatch(b []byte, h *batchHeader, fn func(off int, r record) error) error {
	off := batchHeaderSize
	for n := range h.records {
		r, size, err := decodeRecord(b[off:h.length])
		if err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		if !checkRecord(b[off : off+size]) {
			return fmt.Errorf("record %d: %w", n, errRecordSum)
		}
		if err := fn(off, r); err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		off += size
	}
	if int(h.length)-off >= 8 {
		return errBatchCount
	}
	for _, c := range b[off:h.length] {
		if c != 0 {
			return errBatchEnd
		}
	}
	return nil
}

// metaSize returns the size of the data of a meta record.
func metaSize(m *Meta) int { return 1 + 4 + len(m.Key) + len(m.Value) }

// putMeta writes the data of a meta record into b.
func putMeta(b []byte, m *Meta) {
	b[0] = m.Bucket
	le.PutUint32(b[1:], uint32(len(m.Key)))
	copy(b[5:], m.Key)
	copy(b[5+len(m.Key):], m.Value)
}

// decodeMeta decodes a meta record. Key and value alias it.
func decodeMeta(r record) (Meta, error) {
	if len(r.data) < 5 || int64(le.Uint32(r.data[1:])) > int64(len(r.data)-5) {
		return Meta{}, errRecordMeta
	}
	end := 5 + int(le.Uint32(r.data[1:]))
	m := Meta{Bucket: r.data[0], Key: r.data[5:end:end], Value: r.data[end:], Deleted: r.kind == kindMetaDeletion}
	if m.Deleted && len(m.Value) > 0 {
		return Meta{}, errRecordMeta
	}
	return m, nil
}

func align8(n int64) int64 { return (n + 7) &^ 7 }
