package format

import (
	"errors"
	"hash/crc32"

	"vigil/internal/kv"
)

// Kind is what a record holds.
type Kind uint8

const (
	KindPut Kind = iota + 1
	KindTombstone
	KindMeta
	KindMetaDeletion
)

// Record is a decoded record. Data aliases the encoded bytes.
type Record struct {
	Kind Kind
	Rev  kv.Rev // zero for meta records
	// Time is when the revision was made, in milliseconds since 1970; 0 if that is not known, and
	// for meta records.
	Time int64
	Data []byte
}

// PutRecordHeader fills in the header of b, which is a record with its data in place.
func PutRecordHeader(b []byte, k Kind, rev kv.Rev, time int64) {
	LE.PutUint32(b[4:], uint32(len(b)-RecordHeaderSize)|uint32(k)<<28)
	LE.PutUint64(b[8:], uint64(rev.Main))
	LE.PutUint32(b[16:], uint32(rev.Sub))
	LE.PutUint64(b[20:], uint64(time))
	LE.PutUint32(b, crc32.Checksum(b[4:], Castagnoli))
}

// RecordSize returns the size of a record according to its header, with which b begins.
func RecordSize(b []byte) int { return RecordHeaderSize + int(LE.Uint32(b[4:])&MaxRecord) }

// RecordRev returns the revision of the record whose header begins b.
func RecordRev(b []byte) kv.Rev {
	return kv.Rev{Main: int64(LE.Uint64(b[8:])), Sub: int64(LE.Uint32(b[16:]))}
}

// RecordTime returns the time of the record whose header begins b.
func RecordTime(b []byte) int64 { return int64(LE.Uint64(b[20:])) }

// RecordKind returns the kind of the record whose header begins b. It may be one that does not
// exist.
func RecordKind(b []byte) Kind { return Kind(b[7] >> 4) }

var (
	errRecordShort = errors.New("a record is longer than the bytes that hold it")
	ErrRecordKind  = errors.New("a record is of an unknown kind")
	ErrRecordSum   = errors.New("the checksum of a record does not match")
	errRecordTime  = errors.New("a record has an impossible time")
	errRecordMeta  = errors.New("a meta record is malformed")
	errBatchCount  = errors.New("a batch has more bytes than its number of records takes")
	errBatchEnd    = errors.New("a batch does not end where its records do")
)

// DecodeRecord decodes the record with which b begins and returns its size. It does not check the
// checksum.
func DecodeRecord(b []byte) (r Record, size int, err error) {
	if len(b) < RecordHeaderSize || RecordSize(b) > len(b) {
		return Record{}, 0, errRecordShort
	}
	size = RecordSize(b)
	r.Kind, r.Rev, r.Time = RecordKind(b), RecordRev(b), RecordTime(b)
	r.Data = b[RecordHeaderSize:size:size]
	switch r.Kind {
	case KindPut, KindTombstone:
		if r.Rev.Main <= 0 {
			return Record{}, 0, ErrRecordKind
		}
		if r.Time < 0 || r.Time > kv.MaxTime {
			return Record{}, 0, errRecordTime
		}
	case KindMeta, KindMetaDeletion:
		if r.Rev != (kv.Rev{}) || r.Time != 0 {
			return Record{}, 0, errRecordMeta
		}
	default:
		return Record{}, 0, ErrRecordKind
	}
	return r, size, nil
}

// CheckRecord checks the checksum of b, a whole record.
func CheckRecord(b []byte) bool { return LE.Uint32(b) == crc32.Checksum(b[4:], Castagnoli) }

// CheckParts is CheckRecord for a record whose header and data are in two places.
func CheckParts(head, data []byte) bool {
	return LE.Uint32(head) == crc32.Update(crc32.Checksum(head[4:], Castagnoli), Castagnoli, data)
}

// Meta is a record outside of the key space: a value, or its deletion, under a bucket and a key.
type Meta struct {
	Bucket     byte
	Key, Value []byte
	Deleted    bool
}

// Name returns bucket and key as one text.
func (m *Meta) Name() string { return string(m.Bucket) + string(m.Key) }

// MetaSize returns the size of the data of a meta record.
func MetaSize(m *Meta) int { return 1 + 4 + len(m.Key) + len(m.Value) }

// PutMeta writes the data of a meta record into b.
func PutMeta(b []byte, m *Meta) {
	b[0] = m.Bucket
	LE.PutUint32(b[1:], uint32(len(m.Key)))
	copy(b[5:], m.Key)
	copy(b[5+len(m.Key):], m.Value)
}

// DecodeMeta decodes a meta record. Key and value alias it.
func DecodeMeta(r Record) (Meta, error) {
	if len(r.Data) < 5 || int64(LE.Uint32(r.Data[1:])) > int64(len(r.Data)-5) {
		return Meta{}, errRecordMeta
	}
	end := 5 + int(LE.Uint32(r.Data[1:]))
	m := Meta{Bucket: r.Data[0], Key: r.Data[5:end:end], Value: r.Data[end:],
		Deleted: r.Kind == KindMetaDeletion}
	if m.Deleted && len(m.Value) > 0 {
		return Meta{}, errRecordMeta
	}
	return m, nil
}
