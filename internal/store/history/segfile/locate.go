package segfile

import (
	"hash/crc32"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// The offset tables of a sealed segment were checked when it was opened. They may be a mapping,
// whose pages are read from the disk again: entries that are read later are compared with the
// records that they lead to.

// CheckTables compares the tables as they are now with their checksum.
func (s *File) CheckTables() error {
	if crc32.Update(s.seed, format.Castagnoli, s.tables) != s.foot.TableSum {
		return format.Corrupt(s.path, int64(s.foot.BodyEnd),
			"the checksum of the offset tables does not match")
	}
	return nil
}

// tableAt returns where in the file the table has the offset of record i.
func (s *File) tableAt(i int) int64 {
	at := int64(s.foot.BodyEnd)
	if s.table.Sorted {
		return at + 16*int64(i)
	}
	return at + int64(len(s.table.Mains)) + 4*int64(i)
}

// recordAt returns where record i begins: after the one before it, and inside of the batches.
func (s *File) recordAt(i int) (int64, error) {
	off, least := int64(s.table.Offset(i)), int64(format.HeaderSize+format.BatchHeaderSize)
	if i > 0 {
		least = int64(s.table.Offset(i-1)) + format.RecordHeaderSize
	}
	if most := int64(s.foot.BodyEnd) - format.RecordHeaderSize; off < least || off > most {
		return 0, format.Corrupt(s.path, s.tableAt(i),
			"the offset table leads to offset %d for record %d, not to one from %d to %d", off,
			i, least, most)
	}
	return off, nil
}

// checkRevision compares the revision of b, which begins with record i, with the table. A record
// that is damaged itself fails its checksum later.
func (s *File) checkRevision(i int, b []byte) error {
	if len(b) < format.RecordHeaderSize {
		return nil
	}
	rev, size := format.RecordRev(b), format.RecordSize(b)
	if s.table.Is(i, rev) || size > len(b) || !format.CheckRecord(b[:size]) {
		return nil
	}
	return format.Corrupt(s.path, s.tableAt(i),
		"the offset table leads to the record of revision %d/%d for record %d",
		rev.Main, rev.Sub, i)
}

// Ceil returns the number of the first record at or above rev, or the number of records if there is
// none. It compares the table with the records on both sides.
func (s *File) Ceil(rev kv.Rev) (int, error) {
	i := s.table.Ceil(rev)
	for n := max(i-1, 0); n < min(i+1, s.table.Len()); n++ {
		off, err := s.recordAt(n)
		if err != nil {
			return 0, err
		}
		b, err := s.readBody(off, format.RecordHeaderSize, nil)
		if err != nil {
			return 0, err
		}
		at := format.RecordRev(b)
		if at.Less(rev) == (n < i) {
			continue
		}
		if b, err = s.readBody(off, format.RecordSize(b), nil); err == nil &&
			!format.CheckRecord(b) {
			err = format.Corrupt(s.path, off, "%v", format.ErrRecordSum)
		}
		if err == nil {
			err = format.Corrupt(s.path, s.tableAt(n),
				"the offset table has record %d, of revision %d/%d, on the wrong side of revision %d/%d",
				n, at.Main, at.Sub, rev.Main, rev.Sub)
		}
		return 0, err
	}
	return i, nil
}

// Find returns the number of the record at rev, or -1 if there is none. Only an intact table can
// show that there is none.
func (s *File) Find(rev kv.Rev) (int, error) {
	i := s.table.Find(rev)
	if i < 0 {
		return i, s.CheckTables()
	}
	return i, nil
}

// Span returns about how many bytes record i takes, those up to the next record. It reads only the
// table.
func (s *File) Span(i int) (int64, error) {
	from, err := s.recordAt(i)
	to := int64(s.foot.BodyEnd)
	if err == nil && i+1 < s.table.Len() {
		to, err = s.recordAt(i + 1)
	}
	return to - from, err
}

// Stamp returns the revision and the time of record i. It reads the whole record and checks it.
func (s *File) Stamp(i int) (rev kv.Rev, time int64, err error) {
	off, err := s.recordAt(i)
	if err != nil {
		return kv.Rev{}, 0, err
	}
	b, err := s.readBody(off, format.RecordHeaderSize, nil)
	if err == nil {
		b, err = s.readBody(off, format.RecordSize(b), nil)
	}
	if err != nil {
		return kv.Rev{}, 0, err
	}
	if rev = format.RecordRev(b); !format.CheckRecord(b) || !s.table.Is(i, rev) {
		return kv.Rev{}, 0, format.Corrupt(s.path, off, "%v", format.ErrRecordSum)
	}
	return rev, format.RecordTime(b), nil
}

// RevisionOf returns the revision of record i, and whether it is a tombstone, according to its
// header. It does not check the record's checksum.
func (s *File) RevisionOf(i int) (rev kv.Rev, tombstone bool, err error) {
	off, err := s.recordAt(i)
	if err != nil {
		return kv.Rev{}, false, err
	}
	b, err := s.readBody(off, format.RecordHeaderSize, nil)
	if err != nil {
		return kv.Rev{}, false, err
	}
	if rev = format.RecordRev(b); !s.table.Is(i, rev) {
		return kv.Rev{}, false,
			format.Corrupt(s.path, s.tableAt(i),
				"the offset table leads to a record of revision %d/%d for record %d",
				rev.Main, rev.Sub, i)
	}
	return rev, format.RecordKind(b) == format.KindTombstone, nil
}
