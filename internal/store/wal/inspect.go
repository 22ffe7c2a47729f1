package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	"vigil/internal/bitflip"
	"vigil/internal/vfs"
)

// The kinds of files that Inspect finds.
const (
	KindSegment   = "segment"
	KindSpare     = "spare"     // waits to become a segment
	KindTemporary = "temporary" // Open removes it
)

// InspectOptions are the options of Inspect.
type InspectOptions struct {
	FS  vfs.FS
	Dir string
	// ID is the expected identity of the log. The zero value means the identity in the first good
	// header.
	ID Identity
}

// File describes one file of a log.
type File struct {
	Name    string
	Kind    string
	Version uint32 // of the format; 0 if it could not be read, or it is a spare
	Bytes   int64
	// Groups and Entries are how many it holds, First and Last the indexes of the first and the
	// last entry in it.
	Groups, Entries int
	First, Last     uint64
	// Torn is how many bytes of a group, and of later ones, a crash left that were not known
	// to be durable. Open drops them.
	Torn int64
	// Err is the first damage or error of the file: a CorruptError, or an error that wraps
	// ErrVersion, ErrIdentity or the error of the operation that failed.
	Err error
}

// Inspection reads a log on disk and changes nothing. It is for one goroutine.
type Inspection struct {
	// Bytes is the size of all files.
	Bytes int64
	// ID is whose log it is.
	ID Identity
	// First and Last are the indexes of the first and last entry that Open would find, First one
	// above Last if there is none. Commit is the commit index of the last hard state. They are
	// known when Files has ended, and mean something if no file was bad.
	First, Last, Commit uint64
	// LastTerm is the term of the entry at Last, or of the start if there is no entry; known at the
	// same time. Of two logs, the log with the higher last term has every acknowledged entry; with
	// equal terms, the longer log has.
	LastTerm uint64
	// Start is the position after which the log begins, known at the same time.
	Start Start

	p    opening
	out  []File
	temp []string
}

// Inspect begins the inspection of the log in a directory. It fails with fs.ErrNotExist if there is
// none.
func Inspect(o InspectOptions) (*Inspection, error) {
	opts, err := Options{FS: vfs.ReadOnly(o.FS), Dir: o.Dir, ID: o.ID}.withDefaults()
	if err != nil {
		return nil, err
	}
	in := &Inspection{ID: o.ID}
	in.p.w = &WAL{o: opts}
	names, err := opts.FS.List(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	for _, n := range names {
		id, ok := parseName(n)
		if !ok && !strings.HasSuffix(n, tempSuffix) {
			continue
		}
		f := File{Name: n, Kind: KindSegment}
		if st, err := opts.FS.Stat(segmentPath(o.Dir, id)); ok && err == nil {
			f.Bytes = st.Size()
			in.Bytes += f.Bytes
		}
		if !ok {
			in.temp = append(in.temp, n)
			continue
		}
		in.out = append(in.out, f)
	}
	if len(in.out) == 0 {
		return nil, fmt.Errorf("wal: %s: no segments: %w", o.Dir, fs.ErrNotExist)
	}
	return in, nil
}

// Files reads every byte with a meaning, one file after another, and yields a description of each
// file. It ends early when ctx is done. It is called once.
func (in *Inspection) Files(ctx context.Context) iter.Seq[File] {
	return func(yield func(File) bool) {
		defer func() {
			for _, s := range in.p.files {
				_ = s.release()
			}
		}()
		if err := in.readHeaders(); err != nil {
			in.out[len(in.p.files)].Err = err
			yield(in.out[len(in.p.files)])
			return
		}
		for i := range in.out {
			if ctx.Err() != nil {
				return
			}
			in.readFile(i)
			in.out[i].Err = in.pinpoint(i, in.out[i].Err)
			if !yield(in.out[i]) {
				return
			}
		}
		w := in.p.w
		in.First, in.Last, in.Commit = w.mu.start.Index+1, w.last(), w.mu.hard.commit
		in.LastTerm = w.lastTerm()
		in.Start = w.mu.start
		for _, n := range in.temp {
			if !yield(File{Name: n, Kind: KindTemporary}) {
				return
			}
		}
	}
}

// readHeaders opens all files and reads their headers.
func (in *Inspection) readHeaders() error {
	p, o := &in.p, &in.p.w.o
	p.last = -1
	block := make([]byte, headerSize)
	for i := range in.out {
		id, _ := parseName(in.out[i].Name)
		file, err := o.FS.Open(segmentPath(o.Dir, id))
		if err != nil {
			return err
		}
		s := newSegment(o, id, file, 0)
		h, valid, err := s.readHeader(block)
		in.out[i].Err, in.out[i].Version = err, h.version
		if valid && in.ID == (Identity{}) {
			in.ID = h.owner
		}
		p.files, p.heads, p.valid = append(p.files, s), append(p.heads, h), append(p.valid, valid)
		if valid || err != nil {
			// of a file whose header could not be read it is not known that it is a spare
			p.last = i
		}
	}
	o.ID = in.ID
	return nil
}

// readFile takes in file i.
func (in *Inspection) readFile(i int) {
	p, f := &in.p, &in.out[i]
	w, s := p.w, p.files[i]
	p.counted = counted{}
	if i > p.last {
		f.Version, f.Kind = 0, KindSpare
		f.Err = p.checkPlace(i)
		return
	}
	if f.Err == nil {
		f.Err = p.checkPlace(i)
		if i > 0 && s.id != p.files[i-1].id+1 && p.valid[i] {
			f.Err = nil // said of the one before
		}
	}
	if !p.valid[i] || errors.Is(f.Err, ErrIdentity) {
		return
	}
	if i == 0 || in.out[i-1].Err != nil {
		// What it should continue is unknown, so its own field is trusted.
		w.resetTo(p.heads[i].start)
		w.mu.hard = p.heads[i].hard
	}
	var err error
	switch {
	case i == p.last:
		var off, end int64
		off, _, end, err = p.readLast()
		f.Torn = max(end-off, 0)
		if off+groupHeaderSize <= s.size {
			if b, err := p.scan.pointAt(s).readWindow(off, groupHeaderSize); err == nil {
				if g, ok := parseGroupHeader(b, s.seed, off, s.size); ok {
					f.Torn = max(f.Torn, groupSize(int(g.length)))
				}
			}
		}
		if err == nil && w.mu.hard.commit > w.last() {
			err = s.corrupt(off, "entries up to %d were committed and the log ends at %d",
				w.mu.hard.commit, w.last())
		}
	case p.files[i+1].id != s.id+1:
		if _, _, err = p.applyGroups(s); err == nil {
			err = p.checkPlace(i + 1)
		}
	case p.valid[i+1]:
		err = p.replaySealed(i)
	default:
		// Where it should end is not known.
		_, _, err = p.applyGroups(s)
	}
	f.Groups, f.Entries, f.First, f.Last = p.counted.groups, p.counted.entries,
		p.counted.first, p.counted.last
	if f.Err != nil || err == nil {
		return
	}
	var ce *CorruptError
	if i+1 < len(in.out) && errors.As(err, &ce) && ce.File == p.files[i+1].path {
		// The blame of replaySealed is on the next one.
		in.out[i+1].Err = err
		return
	}
	f.Err = err
}

// pinpoint makes the error about a damaged group or header more exact, if one flipped bit explains
// it.
func (in *Inspection) pinpoint(i int, err error) error {
	var c *CorruptError
	s := in.p.files[i]
	if !errors.As(err, &c) || c.File != s.path || s.size < headerSize {
		return err
	}
	sc := in.p.scan.pointAt(s)
	var b []byte
	var want, got uint32
	var sum int64
	var from func(at int) int64
	if c.Offset == 0 {
		block, rerr := sc.readWindow(0, headerSize)
		if rerr != nil {
			return err
		}
		// The checksum lies inside of what it covers.
		b = append(append(b, block[:12]...), block[16:]...)
		want, got, sum = le.Uint32(block[12:]), headerCRC(block), 12
		from = func(at int) int64 {
			if at >= 12 {
				at += 4
			}
			return int64(at)
		}
	} else {
		if c.Offset%groupAlign != 0 || c.Offset+groupHeaderSize > s.size {
			return err
		}
		head, rerr := sc.readWindow(c.Offset, groupHeaderSize)
		if rerr != nil {
			return err
		}
		length := le.Uint32(head[8:])
		if int64(length) > min(bitflip.Limit, s.size-c.Offset-groupHeaderSize) {
			return err
		}
		group, rerr := sc.readWindow(c.Offset, groupHeaderSize+int(length))
		if rerr != nil {
			return err
		}
		b, want, got = group[4:], le.Uint32(group), groupCRC(group, s.seed, c.Offset)
		sum, from = c.Offset, func(at int) int64 { return c.Offset + 4 + int64(at) }
	}
	exact := func(at int64, bit int) error {
		return &CorruptError{File: c.File, Offset: at,
			Reason: fmt.Sprintf("bit %d is flipped (%s)", bit%8, c.Reason)}
	}
	switch bit := bitflip.Find(b, got, want); {
	case bit >= 0:
		return exact(from(bit/8), bit)
	case bit != bitflip.None:
		return exact(sum+int64((-1-bit)/8), -1-bit)
	}
	return err
}

// Covers returns the error by which Open would refuse the log for Options.Applied. It may be called
// when Files has ended.
func (in *Inspection) Covers(at Start) error { return in.p.w.checkCovers(at) }

// Peek reads only the headers of a log. It returns the identity in the first good one, the zero
// value if there is none, and an error that wraps ErrVersion if a segment is in a version of the
// format that this program does not read. It fails with fs.ErrNotExist if there is no log. It
// changes nothing, and a log without an error may still be damaged.
func Peek(fsys vfs.FS, dir string) (Identity, error) {
	in, err := Inspect(InspectOptions{FS: fsys, Dir: dir})
	if err != nil {
		return Identity{}, err
	}
	err = in.readHeaders()
	for i, s := range in.p.files {
		_ = s.release()
		if e := in.out[i].Err; err == nil && errors.Is(e, ErrVersion) {
			err = e
		}
	}
	if err != nil {
		return Identity{}, err
	}
	return in.ID, nil
}
