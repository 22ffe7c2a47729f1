package history

import (
	"context"
	"errors"
	"io/fs"

	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// Scrubber reads the sealed segments from the disk, one after another and round after round, and
// compares every byte with its checksum. It is used by one goroutine, concurrently with all other
// calls.
//
// It reads through a file of its own and drops the pages that the operating system cached for it,
// except pages that readers have mapped: so it reads from the disk rather than from memory, and
// does not evict pages that readers need.
type Scrubber struct {
	l    *Log
	disk segfile.DiskReader
	last uint64 // the last segment that was read in this round
	// unread counts the segments of this round that could not be read.
	unread int
}

// Scrubbed is the result for one segment.
type Scrubbed struct {
	// File is the segment, and Bytes how much was read of it. File is empty at the end of a round.
	File  string
	Bytes int64
	// Damage describes damage of the file: a failed checksum, a file that is too short or gone, or
	// a read error of the disk. It names file and offset.
	Damage error
	// Unread is why the file could not be read. That says nothing about its content: an example is
	// a lack of file descriptors. The next round tries again.
	Unread error
	// Skipped is, at the end of a round, the number of segments that could not be read in it.
	Skipped int
}

// NewScrubber returns a scrubber that reads at most that many bytes a second, which must be above
// 0.
func (l *Log) NewScrubber(bytesPerSecond int64) *Scrubber {
	return &Scrubber{l: l, disk: segfile.NewDiskReader(l.o.FS, bytesPerSecond)}
}

// Next reads the next sealed segment. A result without a File says that the round is at its end;
// the next call begins another. The only error is ctx's. A segment that was replaced since is
// skipped: its replacement was read back when it was written.
func (s *Scrubber) Next(ctx context.Context) (Scrubbed, error) {
	for _, seg := range s.l.cat.segments() {
		file := seg.file()
		if file == nil || file.Footer().LastID <= s.last {
			continue
		}
		s.last = file.Footer().LastID
		res := Scrubbed{File: file.Path()}
		var err error
		res.Bytes, err = s.disk.Check(ctx, res.File)
		if cerr := ctx.Err(); cerr != nil {
			return Scrubbed{}, cerr
		}
		if errors.Is(err, fs.ErrNotExist) {
			if !s.l.cat.hasFile(file) {
				continue
			}
			err = s.l.cat.explainMissing(s.l.dir, file, err)
		}
		switch {
		case err == nil:
		case vfs.CauseOf(err) == vfs.Damage, errors.Is(err, ErrVersion): // it was written in a known version
			res.Damage = err
		default:
			s.unread++
			res.Unread = err
		}
		return res, nil
	}
	end := Scrubbed{Skipped: s.unread}
	s.last, s.unread = 0, 0
	return end, ctx.Err()
}

// Check reads every byte of the sealed segments and returns the first thing that is not as it was
// written, as a CorruptError, or ctx's error. Reads and writes continue concurrently.
func (l *Log) Check(ctx context.Context) error {
	for _, seg := range l.cat.segments() {
		for {
			src := seg.source()
			if src.file == nil {
				break
			}
			err := src.file.Check(ctx)
			if errors.Is(err, ErrClosed) && seg.source() != src {
				continue // it was rewritten
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}
