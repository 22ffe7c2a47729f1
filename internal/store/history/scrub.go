package history

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// Scrubber reads the sealed segments from the disk, one after another and round after round, and
// compares every byte with its checksum. It is used by one goroutine, concurrently with all other calls.
//
// It reads through a file of its own and drops the pages that the operating system cached for it, except pages that
// readers have mapped: so it reads from the disk rather than from memory, and does not evict pages that readers need.
type Scrubber struct {
	l    *Log
	rate int64
	last uint64 // the last segment that was read in this round
	// unread counts the segments of this round that could not be read.
	unread int
	debt   time.Duration
	at     time.Time // when debt was reckoned
}

// Scrubbed is what came of one segment.
type Scrubbed struct {
	// File is the segment, and Bytes how much was read of it. File is empty at the end of a round.
	File  string
	Bytes int64
	// Damage is what is wrong with the file: a failed checksum, a file that is too short or gone, or a
	// read error of the disk. It names file and offset.
	Damage error
	// Unread is why the file could not be read, which says nothing about what is in it: a lack of file
	// descriptors, say. The next round tries again.
	Unread error
	// Skipped is, at the end of a round, the number of segments that could not be read in it.
	Skipped int
}

const (
	// scrubWindow is how much is read at once.
	scrubWindow = 256 << 10
	// scrubCredit bounds how much of a pause that took too long is made up for.
	scrubCredit = 100 * time.Millisecond
)

// NewScrubber returns a scrubber that reads at most that many bytes a second, which must be above 0.
func (l *Log) NewScrubber(bytesPerSecond int64) *Scrubber {
	return &Scrubber{l: l, rate: bytesPerSecond}
}

// Next reads the next sealed segment. A result without a File says that the round is at its end; the
// next call begins another. The error is that of ctx. A segment that was replaced meanwhile is passed
// over: what replaced it was read back when it was written.
func (s *Scrubber) Next(ctx context.Context) (Scrubbed, error) {
	for _, seg := range s.l.cat.segments() {
		file := seg.src.Load().file
		if file == nil || file.Footer().LastID <= s.last {
			continue
		}
		s.last = file.Footer().LastID
		res := Scrubbed{File: file.Path()}
		err := s.check(ctx, &res)
		if cerr := ctx.Err(); cerr != nil {
			return Scrubbed{}, cerr
		}
		if errors.Is(err, fs.ErrNotExist) {
			if !s.l.cat.uses(file) {
				continue
			}
			err = s.l.cat.missing(file, err)
		}
		switch {
		case err == nil:
		case vfs.CauseOf(err) == vfs.Damage, errors.Is(err, ErrVersion): // what was written had a version that is known
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

func (s *Scrubber) check(ctx context.Context, res *Scrubbed) error {
	file, err := s.l.o.FS.Open(res.File)
	if err != nil {
		return err
	}
	r := &scrubReader{File: file, s: s, ctx: ctx}
	r.drop(0, 0)
	f, _, err := segfile.Open(r, res.File)
	if err == nil {
		err = f.Check(ctx)
		f.Release()
	}
	res.Bytes = r.read
	return err
}

// scrubReader reads a file in large pieces and at the scrubber's pace. It cannot be mapped.
type scrubReader struct {
	vfs.File
	s     *Scrubber
	ctx   context.Context
	buf   []byte
	start int64
	read  int64
}

// ReadAt serves small reads from the piece around them, which is read if need be.
func (r *scrubReader) ReadAt(b []byte, off int64) (int, error) {
	if n := int64(len(b)); n <= scrubWindow {
		if off < r.start || off+n > r.start+int64(len(r.buf)) {
			r.fill(off)
		}
		if from := off - r.start; from >= 0 && from+n <= int64(len(r.buf)) {
			return copy(b, r.buf[from:]), nil
		}
	}
	// What is large, at the end of the file, or cannot be read, by itself: then the error is its own.
	n, err := r.File.ReadAt(b, off)
	r.took(off, n)
	if cerr := r.ctx.Err(); cerr != nil {
		return n, cerr
	}
	return n, err
}

// fill reads the piece that begins at off.
func (r *scrubReader) fill(off int64) {
	if r.buf == nil {
		r.buf = make([]byte, scrubWindow)
	}
	n, _ := r.File.ReadAt(r.buf[:scrubWindow], off) // what is missing is read by itself
	r.buf, r.start = r.buf[:n], off
	r.took(off, n)
}

// took pays for n bytes at off.
func (r *scrubReader) took(off int64, n int) {
	r.read += int64(n)
	r.drop(off, int64(n))
	r.s.pay(r.ctx, n)
}

func (r *scrubReader) drop(off, n int64) {
	if c, ok := r.File.(vfs.CacheDropper); ok {
		_ = c.DropCache(off, n) // a hint
	}
}

// pay waits until n bytes more are within the rate, or ctx ends.
func (s *Scrubber) pay(ctx context.Context, n int) {
	now := time.Now()
	s.debt = max(s.debt-now.Sub(s.at), -scrubCredit) + time.Duration(float64(n)/float64(s.rate)*float64(time.Second))
	s.at = now
	if s.debt <= 0 {
		return
	}
	t := time.NewTimer(s.debt)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
