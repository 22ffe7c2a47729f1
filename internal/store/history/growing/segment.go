package growing

import (
	"hash/crc32"
	"sync/atomic"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// Segment is a segment that is not sealed.
type Segment struct {
	Head  format.Header // never changes
	Path  string
	File  vfs.File
	Alloc int64 // the size of the file

	Memory      Memory // the batches; chunks are appended by the owner
	End         uint32 // where the next batch begins
	Batches     uint32
	First, Last kv.Rev // of the records
	Revision    int64  // the newest main revision, of this segment or before it
	Applied     format.Applied
	// Marked is set if the last batch records that everything before it was synced.
	Marked bool
	// Synced is the offset up to which the file is durable.
	Synced atomic.Uint32

	metas         []uint32 // offsets of the meta records
	bodySum       uint32
	before, after uint32 // as in the footer
	bytes         int64  // of records
	dirty         int64  // the end of the bytes of a loaded segment that are not zero
}

// Create writes the header to file, which is empty or holds zeros, and has size bytes of allocated
// space.
func Create(file vfs.File, path string, head format.Header, size int64) (*Segment, error) {
	s := &Segment{Head: head, Path: path, File: file, Alloc: size, End: format.HeaderSize}
	if _, err := file.WriteAt(s.Head.Encode(), 0); err != nil {
		return nil, err
	}
	s.bodySum = s.Head.Sum
	s.Synced.Store(format.HeaderSize)
	return s, nil
}

// Follow makes the segment, which has no batch, continue old.
func (s *Segment) Follow(old *Segment) { s.before, s.after = old.after, old.after }

// FollowChain makes the segment, which has no batch, continue the segments before it.
func (s *Segment) FollowChain(c *format.Chain) {
	s.before, s.after = c.Sum, c.Sum
	s.Revision, s.Applied = c.Revision, c.Applied
}

// Metas returns the number of meta records.
func (s *Segment) Metas() int { return len(s.metas) }

// SealedSize returns the size of the file after a batch of n bytes with these records and that many
// meta records, a mark and the seal.
func (s *Segment) SealedSize(n int64, recs []format.Entry, metas int) int64 {
	tables := s.Memory.SizeWith(recs) + int64(4*(len(s.metas)+metas))
	return format.SealedSize(int64(s.End)+n+format.BatchHeaderSize, tables)
}

// WriteBatch writes b, a batch without its header, at the end of the file and adds its records,
// whose offsets are those in b. In h, the caller sets Synced, Applied and Revision. After an error,
// nothing is changed but h and the header in b. The caller keeps b in a chunk of Memory if the
// records are read from it.
func (s *Segment) WriteBatch(h *format.BatchHeader, b []byte, recs []format.Entry,
	metas []uint32) error {
	h.Length, h.Prev, h.Records = uint32(len(b)), s.after, uint32(len(recs)+len(metas))
	h.Encode(b, s.Head.Sum)
	if _, err := s.File.WriteAt(b, int64(s.End)); err != nil {
		return err
	}
	for _, e := range recs {
		s.addRecord(e.Rev(), s.End+e.Off)
	}
	for _, off := range metas {
		s.metas = append(s.metas, s.End+off)
	}
	s.addBatch(h, b)
	return nil
}

func (s *Segment) addRecord(rev kv.Rev, off uint32) {
	if s.First == (kv.Rev{}) {
		s.First = rev
	}
	s.Last = rev
	s.Memory.Append(rev, off)
}

// addBatch counts b, a batch after the last one.
func (s *Segment) addBatch(h *format.BatchHeader, b []byte) {
	s.Marked = h.Synced == s.End
	s.End += h.Length
	s.Batches++
	s.bodySum = format.AddSum(s.bodySum, b)
	s.after = h.Sum
	s.bytes += int64(h.Length) - format.BatchHeaderSize
	s.Revision, s.Applied = h.Revision, h.Applied
}

// Footer returns the footer of the segment on its own, without the fields that WriteTables sets.
func (s *Segment) Footer() format.Footer {
	return format.Footer{
		FirstID:  s.Head.ID,
		LastID:   s.Head.ID,
		Revision: s.Revision,
		Applied:  s.Applied,
		Before:   s.before,
		After:    s.after,
	}
}

// WriteTables writes the tables and the footer after the batches, and cuts the file there. It sets
// the fields of the footer that describe the content.
func (s *Segment) WriteTables(foot *format.Footer) error {
	foot.Sparse = s.Memory.Sorted
	foot.BodyEnd = s.End
	foot.Batches = s.Batches
	foot.Records = uint32(s.Memory.Len())
	foot.Metas = uint32(len(s.metas))
	foot.Mains = uint32(len(s.Memory.Mains))
	foot.BodySum = s.bodySum
	foot.First, foot.Last = s.First, s.Last
	foot.Live = uint64(s.bytes)
	b := make([]byte, 0, foot.FileSize()-int64(s.End))
	b = s.Memory.Encode(b)
	for _, off := range s.metas {
		b = format.LE.AppendUint32(b, off)
	}
	foot.TableSum = crc32.Update(s.Head.Sum, format.Castagnoli, b)
	b = b[:cap(b)-format.FooterSize]
	b = append(b, foot.Encode(s.Head.Sum)...)
	if _, err := s.File.WriteAt(b, int64(s.End)); err != nil {
		return err
	}
	return s.File.Truncate(foot.FileSize())
}
