package history

import (
	"errors"
	"hash/crc32"

	"vigil/internal/kv"
)

const (
	footerSize  = 192
	footerMagic = "VgFo"

	flagSparse = 1
)

// footer ends a sealed segment. In front of it lie the tables: that of the records and the offsets
// of the meta records.
type footer struct {
	sparse bool
	// firstID and lastID are the segments that this one stands for, generation how often it was
	// rewritten.
	firstID, lastID uint64
	generation      uint32
	bodyEnd         uint32 // where the batches end and the tables begin
	batches         uint32
	records         uint32 // key-value records
	metas           uint32
	mains           uint32 // length of the dense table's first part
	// bodySum is a checksum over the checksums of the batches.
	bodySum     uint32
	first, last kv.Rev // of the records, if there are any
	revision    int64  // the newest main revision when the last batch was written
	applied     Applied
	// before and after are the checksums of the batch before the first and of the last one: they
	// chain the segments.
	before, after uint32
	tableSum      uint32
	// live is how many bytes of records there were when the footer was written.
	live uint64
}

func (f *footer) tableSize() int64 {
	n := int64(f.metas) * 4
	if f.sparse {
		return n + int64(f.records)*16
	}
	return n + (int64(f.mains)+int64(f.records))*4
}

// fileSize returns the size of the file that f ends.
func (f *footer) fileSize() int64 { return sealedSize(int64(f.bodyEnd), f.tableSize()) }

// sealedSize returns the size of a sealed segment.
func sealedSize(bodyEnd, tables int64) int64 { return align8(bodyEnd+tables) + footerSize }

func (f *footer) encode(headerSum uint32) []byte {
	b := make([]byte, footerSize)
	copy(b, footerMagic)
	if f.sparse {
		le.PutUint32(b[4:], flagSparse)
	}
	le.PutUint64(b[8:], f.firstID)
	le.PutUint64(b[16:], f.lastID)
	le.PutUint32(b[24:], f.generation)
	le.PutUint32(b[28:], f.bodyEnd)
	le.PutUint32(b[32:], f.batches)
	le.PutUint32(b[36:], f.records)
	le.PutUint32(b[40:], f.metas)
	le.PutUint32(b[44:], f.mains)
	le.PutUint32(b[48:], f.bodySum)
	le.PutUint32(b[52:], f.tableSum)
	le.PutUint32(b[56:], f.before)
	le.PutUint32(b[60:], f.after)
	le.PutUint64(b[64:], uint64(f.first.Main))
	le.PutUint64(b[72:], uint64(f.last.Main))
	le.PutUint32(b[80:], uint32(f.first.Sub))
	le.PutUint32(b[84:], uint32(f.last.Sub))
	le.PutUint64(b[88:], uint64(f.revision))
	le.PutUint64(b[96:], f.applied.Term)
	le.PutUint64(b[104:], f.applied.Index)
	le.PutUint64(b[112:], f.live)
	le.PutUint32(b[footerSize-4:], crc32.Update(headerSum, castagnoli, b[:footerSize-4]))
	return b
}

var (
	errFooterMagic = errors.New("there is no footer")
	errFooterSum   = errors.New("the checksum of the footer does not match")
	errFooterSize  = errors.New("the footer does not belong to a file of this size")
	errFooterTable = errors.New("the footer contradicts itself")
)

// decodeFooter decodes b, the last bytes of a file of the given size.
func decodeFooter(b []byte, headerSum uint32, size int64) (footer, error) {
	if len(b) != footerSize || string(b[:4]) != footerMagic {
		return footer{}, errFooterMagic
	}
	if le.Uint32(b[footerSize-4:]) != crc32.Update(headerSum, castagnoli, b[:footerSize-4]) {
		return footer{}, errFooterSum
	}
	f := footer{
		sparse:     le.Uint32(b[4:]) == flagSparse,
		firstID:    le.Uint64(b[8:]),
		lastID:     le.Uint64(b[16:]),
		generation: le.Uint32(b[24:]),
		bodyEnd:    le.Uint32(b[28:]),
		batches:    le.Uint32(b[32:]),
		records:    le.Uint32(b[36:]),
		metas:      le.Uint32(b[40:]),
		mains:      le.Uint32(b[44:]),
		bodySum:    le.Uint32(b[48:]),
		tableSum:   le.Uint32(b[52:]),
		before:     le.Uint32(b[56:]),
		after:      le.Uint32(b[60:]),
		first:      kv.Rev{Main: int64(le.Uint64(b[64:])), Sub: int64(le.Uint32(b[80:]))},
		last:       kv.Rev{Main: int64(le.Uint64(b[72:])), Sub: int64(le.Uint32(b[84:]))},
		revision:   int64(le.Uint64(b[88:])),
		applied:    Applied{Term: le.Uint64(b[96:]), Index: le.Uint64(b[104:])},
		live:       le.Uint64(b[112:]),
	}
	if f.bodyEnd < headerSize || f.fileSize() != size {
		return footer{}, errFooterSize
	}
	if f.firstID > f.lastID || f.last.Less(f.first) || f.revision < f.last.Main ||
		!f.sparse && f.records > 0 && int64(f.mains) != f.last.Main-f.first.Main+1 {
		return footer{}, errFooterTable
	}
	return f, nil
}

// table returns the locator over b, the tables in front of f, and the offsets of the meta records.
func (f *footer) table(b []byte) (t fileTable, metas []byte) {
	t = fileTable{first: f.first.Main, records: int(f.records), sorted: f.sparse}
	if f.sparse {
		t.sparse, metas = b[:16*int(f.records)], b[16*int(f.records):]
		return t, metas[:4*int(f.metas)]
	}
	t.mains, b = b[:4*int(f.mains)], b[4*int(f.mains):]
	t.offs, metas = b[:4*int(f.records)], b[4*int(f.records):]
	return t, metas[:4*int(f.metas)]
}
