package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// The kinds of files that Inspect finds.
const (
	KindSealed    = "sealed"    // a sealed segment
	KindFull      = "full"      // a segment that waits for its seal
	KindOpen      = "open"      // the segment that grows
	KindAllocated = "allocated" // a segment without batches, prepared for later
	KindObsolete  = "obsolete"  // a segment that was rewritten; Open removes it
	KindTemporary = "temporary" // an unfinished file; Open removes it
	KindMissing   = "missing"   // segments that should be there
)

// InspectOptions say what to inspect.
type InspectOptions struct {
	FS  vfs.FS
	Dir string
	// SealedOnly leaves out everything that may change while a log is open on the directory. What
	// is then looked at may be removed meanwhile, which is no error, and how files follow each
	// other is not looked at.
	SealedOnly bool
}

// File is what Inspect found in one file.
type File struct {
	Name    string
	Kind    string
	Version uint32 // of the format; 0 if it could not be read
	Bytes   int64
	// FirstID and LastID are the segments that it stands for.
	FirstID, LastID uint64
	// Batches, Records (puts and tombstones) and Metas are how many it holds, First and Last the
	// revisions of the first and last record, Applied the position of the last batch.
	Batches, Records, Metas int
	First, Last             kv.Rev
	Applied                 Applied
	// Torn is the number of bytes after the last whole batch that Open would overwrite with zeros: the parts of batches
	// that a crash left and that were not known to be durable.
	Torn int64
	// Err is the first thing that is wrong with it: a CorruptError, or an error that wraps
	// ErrVersion, ErrIdentity or that of the operation that failed. A file that was removed
	// meanwhile has fs.ErrNotExist.
	Err error
}

// Inspection is a log as it lies on disk, looked at without changing anything. It is for one
// goroutine.
type Inspection struct {
	// Bytes is the size of all files that will be looked at.
	Bytes int64
	// ClusterID and MemberID are those of the first file whose header is good, Applied and Revision
	// the end of what was found. They are complete when Files has ended.
	ClusterID, MemberID uint64
	Applied             Applied
	Revision            int64

	o     InspectOptions
	r     recovery
	files files
	// obsolete files are there in addition to those that count.
	obsolete []string
	sizes    map[string]int64
	// lost is set while it is not known what the next file has to follow.
	lost bool
}

// Inspect begins to look at the log in a directory. It fails with fs.ErrNotExist if there is none.
func Inspect(o InspectOptions) (*Inspection, error) {
	fsys := vfs.ReadOnly(o.FS)
	in := &Inspection{o: o, sizes: map[string]int64{}}
	in.r = recovery{l: newLog(Options{FS: fsys, Dir: o.Dir}), nextID: 1}
	ok, err := Exists(fsys, o.Dir)
	if err == nil && !ok {
		err = fmt.Errorf("history: %s: %w", o.Dir, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	if in.files, err = in.r.l.list(); err != nil {
		return nil, err
	}
	in.files.sealed, in.obsolete = in.files.current()
	if o.SealedOnly {
		in.files.logs, in.files.temp, in.obsolete = nil, nil, nil
	}
	for _, f := range in.files.sealed {
		in.measure(f.name)
	}
	for _, name := range in.obsolete {
		in.measure(name)
	}
	for _, id := range in.files.logs {
		in.measure(format.SegmentName(id))
	}
	for _, name := range in.files.temp {
		in.measure(name)
	}
	return in, nil
}

func (in *Inspection) measure(name string) {
	if st, err := in.r.l.o.FS.Stat(in.r.l.path(name)); err == nil {
		in.sizes[name] = st.Size()
		in.Bytes += st.Size()
	}
}

// Files looks at one file after another, reading every byte that means something, and yields what it
// found. It ends early when ctx is done. It is called once.
func (in *Inspection) Files(ctx context.Context) iter.Seq[File] {
	return func(yield func(File) bool) {
		for i := range in.files.sealed {
			for _, f := range in.sealed(ctx, &in.files.sealed[i]) {
				if ctx.Err() != nil || !yield(f) {
					return
				}
			}
		}
		for _, f := range in.logs() {
			if ctx.Err() != nil || !yield(f) {
				return
			}
		}
		for _, name := range in.obsolete {
			if !yield(File{Name: name, Kind: KindObsolete, Bytes: in.sizes[name]}) {
				return
			}
		}
		for _, name := range in.files.temp {
			if !yield(File{Name: name, Kind: KindTemporary, Bytes: in.sizes[name]}) {
				return
			}
		}
	}
}

// sealed looks at a sealed segment. In front of it come those that are missing.
func (in *Inspection) sealed(ctx context.Context, f *sealedFile) []File {
	out := File{Name: f.name, Kind: KindSealed, Bytes: in.sizes[f.name], FirstID: f.first, LastID: f.last}
	var before []File
	if !in.o.SealedOnly {
		before = in.gap(f.first)
	}
	s, err := in.openSealed(f, &out)
	if err == nil {
		defer s.Release()
		foot := s.Footer()
		out.Batches, out.Records, out.Metas = int(foot.Batches), int(foot.Records), int(foot.Metas)
		out.First, out.Last, out.Applied = foot.First, foot.Last, foot.Applied
		err = errors.Join(in.follows(s), s.Check(ctx))
		if err == nil {
			err = s.EachMeta(func(uint32, Meta) {})
		}
		last := in.r.l.w.last
		if foot.Records > 0 {
			last = foot.Last
		}
		in.r.advance(f.last+1, last, foot.Revision, foot.Applied, foot.After)
		in.note()
		in.lost = false
		out.Err = in.pinpoint(first(err))
	} else {
		in.r.nextID, in.lost = f.last+1, true
		out.Err = in.pinpoint(err)
	}
	return append(before, out)
}

// pinpoint makes an error about a file more exact.
func (in *Inspection) pinpoint(err error) error {
	var c *CorruptError
	if !errors.As(err, &c) {
		return err
	}
	file, oerr := in.r.l.o.FS.Open(c.File)
	if oerr != nil {
		return err
	}
	defer file.Close()
	seed := uint32(0)
	if b := make([]byte, format.HeaderSize); segfile.ReadFull(file, c.File, b, 0) == nil {
		if h, err := format.DecodeHeader(b); err == nil {
			seed = h.Sum
		}
	}
	return pinpoint(file, seed, err)
}

// first returns the first of joined errors.
func first(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		if errs := j.Unwrap(); len(errs) > 0 {
			return first(errs[0])
		}
	}
	return err
}

func (in *Inspection) openSealed(f *sealedFile, out *File) (*segfile.File, error) {
	path := in.r.l.path(f.name)
	file, err := in.r.l.o.FS.Open(path)
	if err != nil {
		return nil, err
	}
	out.Version = peekVersion(file)
	s, h, err := segfile.Open(file, path)
	if err != nil {
		return nil, err
	}
	if err := in.identify(&h, path); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

// peekVersion returns the version in a good header, 0 if there is none.
func peekVersion(file vfs.File) uint32 {
	b := make([]byte, format.HeaderSize)
	if segfile.ReadFull(file, "", b, 0) != nil {
		return 0
	}
	h, err := format.DecodeHeader(b)
	if err != nil {
		return 0
	}
	return h.Version
}

func (in *Inspection) identify(h *format.Header, path string) error {
	err := in.r.identify(h, path)
	in.ClusterID, in.MemberID = in.r.l.o.ClusterID, in.r.l.o.MemberID
	return err
}

// gap returns the missing segments before first.
func (in *Inspection) gap(first uint64) []File {
	if first <= in.r.nextID {
		return nil
	}
	out := File{Kind: KindMissing, FirstID: in.r.nextID, LastID: first - 1}
	out.Name = format.SegmentName(out.FirstID)
	if out.FirstID < out.LastID {
		out.Name = format.SealedName(out.FirstID, out.LastID, 0)
	}
	out.Err = format.Corrupt(in.r.l.path(out.Name), 0, "segments %x to %x are missing", out.FirstID, out.LastID)
	in.lost, in.r.nextID = true, first
	return []File{out}
}

// follows says what is wrong with how a sealed segment follows the one before it.
func (in *Inspection) follows(s *segfile.File) error {
	if in.o.SealedOnly || in.lost {
		return nil
	}
	switch {
	case s.Footer().FirstID < in.r.nextID:
		return format.Corrupt(s.Path(), 0, "segment %x is there twice", s.Footer().FirstID)
	case s.Footer().Before != in.r.chain:
		return format.Corrupt(s.Path(), 0, "the segment does not continue the one before it")
	case s.Footer().Records > 0 && !in.r.l.w.last.Less(s.Footer().First):
		return format.Corrupt(s.Path(), 0, "the segment begins at revision %d/%d, which is not above that of the one before it",
			s.Footer().First.Main, s.Footer().First.Sub)
	}
	return nil
}

func (in *Inspection) note() { in.Applied, in.Revision = in.r.l.w.applied, in.r.l.w.last.Main }

// logs looks at the segments that are not sealed, as Open would.
func (in *Inspection) logs() []File {
	out := make([]File, 0, len(in.files.logs)+1)
	grows := -1 // the last one with a batch
	ended := false
	for _, id := range in.files.logs {
		out = append(out, in.gap(id)...)
		f := File{Name: format.SegmentName(id), Bytes: in.sizes[format.SegmentName(id)], Kind: KindAllocated, FirstID: id, LastID: id}
		seg, err := in.open(id, &f)
		if err == nil && !ended {
			err = in.load(seg, &f)
		}
		if seg != nil {
			switch {
			case seg.batches == 0:
				ended = true
			case grows >= 0:
				out[grows].Kind = KindFull
				fallthrough
			default:
				f.Kind, grows = KindOpen, len(out)
			}
			if err == nil {
				// A segment that another one follows has no torn tail: the chain proves it.
				err = in.r.endOf(seg, true)
				f.Torn = max(seg.dirty-int64(seg.end), 0)
			}
			seg.mem = memory{}
			_ = seg.file.Close()
		} else {
			ended, in.lost = false, true
			f.Kind = KindOpen
		}
		in.r.nextID = id + 1
		f.Err = in.pinpoint(err)
		out = append(out, f)
	}
	for i := range out {
		if out[i].Kind == KindFull {
			out[i].Torn = 0 // Open seals it
		}
	}
	if grows < 0 && len(in.files.sealed) == 0 && len(in.files.logs) > 0 {
		if f := &out[len(out)-1]; f.Err == nil {
			f.Err = format.Corrupt(in.r.l.path(f.Name), format.HeaderSize, "there is no batch")
		}
	}
	return out
}

// open opens a segment that is not sealed; nil if it has no good header.
func (in *Inspection) open(id uint64, f *File) (*openSegment, error) {
	path := in.r.l.path(format.SegmentName(id))
	if file, err := in.r.l.o.FS.Open(path); err == nil {
		f.Version = peekVersion(file)
		_ = file.Close()
	}
	seg, err := in.r.openLog(id)
	in.ClusterID, in.MemberID = in.r.l.o.ClusterID, in.r.l.o.MemberID
	return seg, err
}

// load reads the batches of a segment that is not sealed.
func (in *Inspection) load(seg *openSegment, f *File) error {
	if in.lost {
		// What it should continue is unknown, so its own field is trusted.
		b := make([]byte, format.BatchHeaderSize)
		if segfile.ReadFull(seg.file, seg.path, b, format.HeaderSize) == nil {
			if h, ok := format.DecodeBatchHeader(b, seg.alloc-format.HeaderSize); ok {
				in.r.chain, in.lost = h.Prev, false
			}
		}
	}
	err := in.r.load(seg)
	f.Batches, f.Records, f.Metas = int(seg.batches), seg.mem.Len(), len(seg.metas)
	f.First, f.Last, f.Applied = seg.first, seg.last, seg.applied
	if seg.batches > 0 {
		in.note()
	} else {
		f.Applied = Applied{}
	}
	return err
}
