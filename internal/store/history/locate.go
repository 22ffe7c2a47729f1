package history

import (
	"hash/crc32"
	"iter"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// The offset tables of a sealed segment were checked when it was opened. They may be a mapping, whose
// pages are read from the disk again: entries that are read later are compared with the records that they
// lead to. All of these are called with the file held, inside guard.

// checkTables compares the tables as they are now with their checksum.
func (s *sealed) checkTables() error {
	if crc32.Update(s.seed, format.Castagnoli, s.tables) != s.foot.TableSum {
		return format.Corrupt(s.path, int64(s.foot.BodyEnd), "the checksum of the offset tables does not match")
	}
	return nil
}

// tableAt returns where in the file the table has the offset of record i.
func (s *sealed) tableAt(i int) int64 {
	at := int64(s.foot.BodyEnd)
	if s.table.Sorted {
		return at + 16*int64(i)
	}
	return at + int64(len(s.table.Mains)) + 4*int64(i)
}

// recordAt returns where record i begins: after the one before it, and inside of the batches.
func (s *sealed) recordAt(i int) (int64, error) {
	off, least := int64(s.table.Offset(i)), int64(format.HeaderSize+format.BatchHeaderSize)
	if i > 0 {
		least = int64(s.table.Offset(i-1)) + format.RecordHeaderSize
	}
	if most := int64(s.foot.BodyEnd) - format.RecordHeaderSize; off < least || off > most {
		return 0, format.Corrupt(s.path, s.tableAt(i), "the offset table leads to offset %d for record %d, not to one from %d to %d", off, i, least, most)
	}
	return off, nil
}

// expect compares the revision of b, which begins with record i, with the table. A record that is
// damaged itself is left to its checksum.
func (s *sealed) expect(i int, b []byte) error {
	if len(b) < format.RecordHeaderSize {
		return nil
	}
	rev, size := headRev(b), format.RecordSize(b)
	if s.table.Is(i, rev) || size > len(b) || !format.CheckRecord(b[:size]) {
		return nil
	}
	return format.Corrupt(s.path, s.tableAt(i), "the offset table leads to the record of revision %d/%d for record %d", rev.Main, rev.Sub, i)
}

// ceil is that of the table, compared with the records on both sides.
func (s *sealed) ceil(rev kv.Rev) (int, error) {
	i := s.table.Ceil(rev)
	for n := max(i-1, 0); n < min(i+1, s.table.Len()); n++ {
		off, err := s.recordAt(n)
		if err != nil {
			return 0, err
		}
		b, err := s.read(off, format.RecordHeaderSize, nil)
		if err != nil {
			return 0, err
		}
		at := headRev(b)
		if at.Less(rev) == (n < i) {
			continue
		}
		if b, err = s.read(off, format.RecordSize(b), nil); err == nil && !format.CheckRecord(b) {
			err = format.Corrupt(s.path, off, "%v", format.ErrRecordSum)
		}
		if err == nil {
			err = format.Corrupt(s.path, s.tableAt(n), "the offset table has record %d, of revision %d/%d, on the wrong side of revision %d/%d",
				n, at.Main, at.Sub, rev.Main, rev.Sub)
		}
		return 0, err
	}
	return i, nil
}

// find is that of the table. That there is no such record is believed of a sound table only.
func (s *sealed) find(rev kv.Rev) (int, error) {
	i := s.table.Find(rev)
	if i < 0 {
		return i, s.checkTables()
	}
	return i, nil
}

// span returns about how many bytes record i takes, reading no more than the table: those up to the
// next record.
func (s *sealed) span(i int) (int64, error) {
	from, err := s.recordAt(i)
	to := int64(s.foot.BodyEnd)
	if err == nil && i+1 < s.table.Len() {
		to, err = s.recordAt(i + 1)
	}
	return to - from, err
}

// records appends to recs the records of the numbers given, as their headers have them.
func (s *sealed) records(numbers iter.Seq[int], recs []DeadRecord) ([]DeadRecord, error) {
	for i := range numbers {
		off, err := s.recordAt(i)
		if err != nil {
			return recs, err
		}
		b, err := s.read(off, format.RecordHeaderSize, nil)
		if err != nil {
			return recs, err
		}
		rev := headRev(b)
		if !s.table.Is(i, rev) {
			return recs, format.Corrupt(s.path, s.tableAt(i), "the offset table leads to a record of revision %d/%d for record %d", rev.Main, rev.Sub, i)
		}
		recs = append(recs, DeadRecord{Rev: rev, Tombstone: format.Kind(b[7]>>4) == format.KindTombstone})
	}
	return recs, nil
}

// headRev returns the revision of the record whose header begins b.
func headRev(b []byte) kv.Rev {
	return kv.Rev{Main: int64(format.LE.Uint64(b[8:])), Sub: int64(format.LE.Uint32(b[16:]))}
}
