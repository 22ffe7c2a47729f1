package history

import "vigil/kv"

// View is an immutable state of a Log: the records of the batches that were committed when it was
// taken. It is safe for concurrent use and needs no closing; it stays readable until the Log is
// closed.
type View struct{}

// Last returns the main revision of the newest record, 0 if no record was ever written.
func (v *View) Last() int64 { return 0 }

// LastRev returns the revision of the newest record.
func (v *View) LastRev() kv.Rev { return kv.Rev{} }

// Applied returns the position of the newest batch.
func (v *View) Applied() Applied { return Applied{} }

// Get appends the encoded record at rev to dst, which may be nil. ErrNotFound if there is none. The
// bytes were checked against their checksum.
func (v *View) Get(rev kv.Rev, dst []byte) ([]byte, error) { return nil, nil }

// GetMany appends the records at revs, in the order given, to out. On an error out holds the records
// before the one that failed. Revisions that are near each other cost less.
func (v *View) GetMany(revs []kv.Rev, out *kv.Records) error { return nil }

// Scan returns a Scanner over the records at and above from.
func (v *View) Scan(from kv.Rev) *Scanner { return nil }

// Split cuts all records of the view into at most n contiguous parts of about the same number of
// bytes, in order. The scanners may be used each in a goroutine of its own. A part may hold part of
// a revision.
func (v *View) Split(n int) []*Scanner { return nil }

// Scanner walks over records in the order of their revisions, with a bounded buffer. It is not safe
// for concurrent use.
//
//	s := v.Scan(from)
//	defer s.Close()
//	for s.Next() {
//		... s.Rev(), s.Tombstone(), s.Data()
//	}
//	if err := s.Err(); err != nil {
type Scanner struct{}

// Next goes to the next record. It returns false at the end or on an error.
func (s *Scanner) Next() bool { return false }

// Rev returns the revision of the current record.
func (s *Scanner) Rev() kv.Rev { return kv.Rev{} }

// Tombstone says whether the current record is a deletion.
func (s *Scanner) Tombstone() bool { return false }

// Data returns the encoded record. It is valid until the next Next or Close and must not be
// modified.
func (s *Scanner) Data() []byte { return nil }

// Err returns what ended the scan early, nil at its proper end.
func (s *Scanner) Err() error { return nil }

// Close gives back what the scanner holds.
func (s *Scanner) Close() {}
