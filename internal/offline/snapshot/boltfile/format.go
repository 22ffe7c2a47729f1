package boltfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
)

const (
	magic   = 0xED0CDAED
	version = 2

	// PageSize is the page size of written files. Files that are read contain their own.
	PageSize = 4096

	// MaxKey is the length in bytes of the longest key of the library.
	MaxKey = 32768

	// minChildren is the least number of children of a branch page that the library expects.
	minChildren = 2

	pageHeaderSize   = 16
	elementSize      = 16 // of leaf and branch pages alike
	metaSize         = 64
	bucketHeaderSize = 16

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10

	// elementBucket is the flag of a leaf element whose value is the header of a bucket.
	elementBucket = 0x01

	minPageSize = 512
	maxPageSize = 64 << 10
)

var le = binary.LittleEndian

// ErrCorrupt is wrapped by every error about the content of a file.
var ErrCorrupt = errors.New("damaged database file")

// CorruptError is a damage of a file.
type CorruptError struct {
	// Offset is the offset of the damaged page in the file.
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: offset %d: %s", ErrCorrupt, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

func corrupt(off int64, format string, args ...any) error {
	return &CorruptError{Offset: off, Reason: fmt.Sprintf(format, args...)}
}

// meta is the content of the first two pages.
type meta struct {
	pageSize uint32
	root     uint64
	freelist uint64
	// pages is the number of pages; the file may be longer.
	pages uint64
	txid  uint64
}

// appendTo appends the encoding of a meta page with its header.
func (m *meta) appendTo(b []byte, id uint64) []byte {
	b = appendPageHeader(b, id, flagMeta, 0, 0)
	from := len(b)
	b = le.AppendUint32(b, magic)
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, m.pageSize)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, m.root)
	b = le.AppendUint64(b, 0) // sequence of the root bucket
	b = le.AppendUint64(b, m.freelist)
	b = le.AppendUint64(b, m.pages)
	b = le.AppendUint64(b, m.txid)
	return le.AppendUint64(b, metaSum(b[from:]))
}

func metaSum(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64()
}

var (
	errMetaMagic = errors.New("this is not a database file")
	errMetaSum   = errors.New("the checksum of the meta page does not match")
)

// decodeMeta decodes a meta page after its header.
func decodeMeta(b []byte) (meta, error) {
	if len(b) < metaSize || le.Uint32(b) != magic {
		return meta{}, errMetaMagic
	}
	if le.Uint64(b[56:]) != metaSum(b[:56]) {
		return meta{}, errMetaSum
	}
	if v := le.Uint32(b[4:]); v != version {
		return meta{}, fmt.Errorf("version %d of the format is not known", v)
	}
	m := meta{pageSize: le.Uint32(b[8:]), root: le.Uint64(b[16:]), freelist: le.Uint64(b[32:]),
		pages: le.Uint64(b[40:]), txid: le.Uint64(b[48:])}
	if s := m.pageSize; s < minPageSize || s > maxPageSize || s&(s-1) != 0 {
		return meta{}, fmt.Errorf("pages of %d bytes", s)
	}
	return m, nil
}

func appendPageHeader(b []byte, id uint64, flags, count uint16, overflow uint32) []byte {
	b = le.AppendUint64(b, id)
	b = le.AppendUint16(b, flags)
	b = le.AppendUint16(b, count)
	return le.AppendUint32(b, overflow)
}
