package format

import (
	"errors"
	"hash/crc32"

	"vigil/internal/kv"
)

const (
	FooterSize  = 192
	FooterMagic = "VgFo"

	flagSparse = 1
)

// Footer ends a sealed segment. Before it are the tables: the offsets of the records and of the
// meta records.
type Footer struct {
	Sparse bool
	// FirstID and LastID are the segments that this one stands for, Generation is how often it was
	// rewritten.
	FirstID, LastID uint64
	Generation      uint32
	BodyEnd         uint32 // where the batches end and the tables begin
	Batches         uint32
	Records         uint32 // key-value records
	Metas           uint32
	Mains           uint32 // length of the dense table's first part
	// BodySum is a checksum over the checksums of the batches.
	BodySum     uint32
	First, Last kv.Rev // of the records, if there are any
	Revision    int64  // the newest main revision when the last batch was written
	Applied     Applied
	// Before and After are the checksums of the batch before the first one and of the last one:
	// they chain the segments.
	Before, After uint32
	TableSum      uint32
	// Live is how many bytes of records there were when the footer was written.
	Live uint64
}

// TableSize returns the size of the tables.
func (f *Footer) TableSize() int64 {
	n := int64(f.Metas) * 4
	if f.Sparse {
		return n + int64(f.Records)*16
	}
	return n + (int64(f.Mains)+int64(f.Records))*4
}

// FileSize returns the size of the file that f ends.
func (f *Footer) FileSize() int64 { return SealedSize(int64(f.BodyEnd), f.TableSize()) }

// SealedSize returns the size of a sealed segment.
func SealedSize(bodyEnd, tables int64) int64 { return Align8(bodyEnd+tables) + FooterSize }

// Encode returns the encoded footer; headerSum is the checksum of the segment's header.
func (f *Footer) Encode(headerSum uint32) []byte {
	b := make([]byte, FooterSize)
	copy(b, FooterMagic)
	if f.Sparse {
		LE.PutUint32(b[4:], flagSparse)
	}
	LE.PutUint64(b[8:], f.FirstID)
	LE.PutUint64(b[16:], f.LastID)
	LE.PutUint32(b[24:], f.Generation)
	LE.PutUint32(b[28:], f.BodyEnd)
	LE.PutUint32(b[32:], f.Batches)
	LE.PutUint32(b[36:], f.Records)
	LE.PutUint32(b[40:], f.Metas)
	LE.PutUint32(b[44:], f.Mains)
	LE.PutUint32(b[48:], f.BodySum)
	LE.PutUint32(b[52:], f.TableSum)
	LE.PutUint32(b[56:], f.Before)
	LE.PutUint32(b[60:], f.After)
	LE.PutUint64(b[64:], uint64(f.First.Main))
	LE.PutUint64(b[72:], uint64(f.Last.Main))
	LE.PutUint32(b[80:], uint32(f.First.Sub))
	LE.PutUint32(b[84:], uint32(f.Last.Sub))
	LE.PutUint64(b[88:], uint64(f.Revision))
	LE.PutUint64(b[96:], f.Applied.Term)
	LE.PutUint64(b[104:], f.Applied.Index)
	LE.PutUint64(b[112:], f.Live)
	LE.PutUint32(b[FooterSize-4:], crc32.Update(headerSum, Castagnoli, b[:FooterSize-4]))
	return b
}

var (
	errFooterMagic = errors.New("there is no footer")
	ErrFooterSum   = errors.New("the checksum of the footer does not match")
	errFooterSize  = errors.New("the footer does not belong to a file of this size")
	errFooterTable = errors.New("the footer contradicts itself")
)

// DecodeFooter decodes b, the last bytes of a file of the given size, and checks its checksum.
func DecodeFooter(b []byte, headerSum uint32, size int64) (Footer, error) {
	if len(b) != FooterSize || string(b[:4]) != FooterMagic {
		return Footer{}, errFooterMagic
	}
	if LE.Uint32(b[FooterSize-4:]) != crc32.Update(headerSum, Castagnoli, b[:FooterSize-4]) {
		return Footer{}, ErrFooterSum
	}
	f := Footer{
		Sparse:     LE.Uint32(b[4:]) == flagSparse,
		FirstID:    LE.Uint64(b[8:]),
		LastID:     LE.Uint64(b[16:]),
		Generation: LE.Uint32(b[24:]),
		BodyEnd:    LE.Uint32(b[28:]),
		Batches:    LE.Uint32(b[32:]),
		Records:    LE.Uint32(b[36:]),
		Metas:      LE.Uint32(b[40:]),
		Mains:      LE.Uint32(b[44:]),
		BodySum:    LE.Uint32(b[48:]),
		TableSum:   LE.Uint32(b[52:]),
		Before:     LE.Uint32(b[56:]),
		After:      LE.Uint32(b[60:]),
		First:      kv.Rev{Main: int64(LE.Uint64(b[64:])), Sub: int64(LE.Uint32(b[80:]))},
		Last:       kv.Rev{Main: int64(LE.Uint64(b[72:])), Sub: int64(LE.Uint32(b[84:]))},
		Revision:   int64(LE.Uint64(b[88:])),
		Applied:    Applied{Term: LE.Uint64(b[96:]), Index: LE.Uint64(b[104:])},
		Live:       LE.Uint64(b[112:]),
	}
	if f.BodyEnd < HeaderSize || f.FileSize() != size {
		return Footer{}, errFooterSize
	}
	if f.FirstID > f.LastID || f.Last.Less(f.First) || f.Revision < f.Last.Main ||
		!f.Sparse && f.Records > 0 && int64(f.Mains) != f.Last.Main-f.First.Main+1 {
		return Footer{}, errFooterTable
	}
	return f, nil
}

// Tables splits b, the tables before f, into the table of the records and the offsets of the meta
// records.
func (f *Footer) Tables(b []byte) (t FileTable, metas []byte) {
	t = FileTable{first: f.First.Main, records: int(f.Records), Sorted: f.Sparse}
	if f.Sparse {
		t.Sparse, metas = b[:16*int(f.Records)], b[16*int(f.Records):]
		return t, metas[:4*int(f.Metas)]
	}
	t.Mains, b = b[:4*int(f.Mains)], b[4*int(f.Mains):]
	t.Offs, metas = b[:4*int(f.Records)], b[4*int(f.Records):]
	return t, metas[:4*int(f.Metas)]
}
