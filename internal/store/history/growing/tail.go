package growing

import (
	"bytes"

	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
)

// ExamineTail examines the bytes after the last good batch of a loaded segment that is the end of
// the log. A later batch that records a sync beyond that end proves damage; otherwise the bytes are
// a torn tail.
func (s *Segment) ExamineTail() error {
	step := max(min(1<<20, s.Alloc-int64(s.End)), 1)
	zero := make([]byte, step)
	buf := make([]byte, step+format.BatchHeaderSize)
	// Batches do not overlap, so there is a limit on the bytes to check: a client may fill a value
	// with headers of long batches. Beyond the limit, the rest passes for a torn tail. If it is
	// damage, the raft log has the missing batches, or it begins after the end of the history, and
	// then the member does not start.
	left := 4 * (s.Alloc - int64(s.End))
	for off := int64(s.End); off < s.Alloc; off += step {
		b := buf[:min(int64(len(buf)), s.Alloc-off)]
		if err := segfile.ReadFull(s.File, s.Path, b, off); err != nil {
			return err
		}
		own := b[:min(step, int64(len(b)))]
		if bytes.Equal(own, zero[:len(own)]) {
			continue
		}
		s.dirty = off + int64(len(bytes.TrimRight(own, "\x00")))
		for at := 0; left > 0; {
			i := bytes.Index(b[at:], []byte(format.BatchMagic))
			if i < 0 {
				break
			}
			from := at + i - 4
			at += i + 1
			if from < 0 || int64(from) >= step || (off+int64(from))%8 != 0 {
				continue
			}
			found, n, err := s.provesSync(b[from:], off+int64(from))
			if err != nil {
				return err
			}
			if left -= n; found {
				return format.Corrupt(s.Path, int64(s.End),
					"there is no good batch here, but the batch at offset %d records that it had been synced", off+int64(from))
			}
		}
	}
	return nil
}

// provesSync reports whether b, bytes of the file at off, begins with the header of a good batch
// that records a sync beyond the end of the segment, and how many bytes it has read.
func (s *Segment) provesSync(b []byte, off int64) (found bool, read int64, err error) {
	h, ok := format.DecodeBatchHeader(b, s.Alloc-off)
	if !ok || h.Synced <= s.End {
		return false, 0, nil
	}
	batch := make([]byte, h.Length)
	if err := segfile.ReadFull(s.File, s.Path, batch, off); err != nil {
		return false, 0, err
	}
	return h.Check(batch, s.Head.Sum), int64(h.Length), nil
}

// Torn returns the number of bytes that ExamineTail found from the end of the batches up to the
// last one that is not zero.
func (s *Segment) Torn() int64 { return max(s.dirty-int64(s.End), 0) }

// ClearTail overwrites the torn tail with zeros, so that it can never pass for a batch again.
func (s *Segment) ClearTail() error {
	zero := make([]byte, min(s.Torn(), 1<<20))
	for off := int64(s.End); off < s.dirty; off += int64(len(zero)) {
		if _, err := s.File.WriteAt(zero[:min(int64(len(zero)), s.dirty-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// WriteUnsynced writes the batches of a loaded segment that are not known to be synced once more: a
// sync that failed before the restart may have left them in the cache of the operating system only,
// marked as written.
func (s *Segment) WriteUnsynced() error {
	for _, c := range s.Memory.Chunks {
		from, to := max(s.Synced.Load(), c.Start), min(s.End, c.Start+uint32(len(c.Buf)))
		if from < to {
			if _, err := s.File.WriteAt(c.Buf[from-c.Start:to-c.Start], int64(from)); err != nil {
				return err
			}
		}
	}
	return nil
}
