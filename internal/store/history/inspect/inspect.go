package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// The kinds of files.
const (
	KindSealed    = "sealed"    // a sealed segment
	KindFull      = "full"      // a segment that waits for its seal
	KindOpen      = "open"      // the segment that grows
	KindAllocated = "allocated" // a segment without batches, prepared for later
	KindObsolete  = "obsolete"  // a segment that was rewritten; Open removes it
	KindTemporary = "temporary" // an unfinished file; Open removes it
	KindMissing   = "missing"   // segments that should be there
)

// Options say what to inspect.
type Options struct {
	FS  vfs.FS
	Dir string
	// SealedOnly leaves out everything that may change while a log is open on the directory. What
	// is then read may be removed at any time, which is not an error, and how files follow each
	// other is not checked.
	SealedOnly bool
}

// File describes one file.
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
	Applied                 format.Applied
	// Torn is the number of bytes after the last whole batch that Open would overwrite with zeros:
	// the parts of batches that a crash left and that were not known to be durable.
	Torn int64
	// Err is the first thing that is wrong with it: a format.CorruptError, or an error that wraps
	// format.ErrVersion, format.ErrIdentity or the error of the operation that failed. A file that
	// was removed before it was read has fs.ErrNotExist.
	Err error
}

// Inspection is a log as it is on disk. It is for one goroutine.
type Inspection struct {
	// Bytes is the size of all files that will be read.
	Bytes int64
	// ClusterID and MemberID are the ids in the first good header, Applied and Revision the end of
	// the history that was found. They are complete when Files has ended.
	ClusterID, MemberID uint64
	Applied             format.Applied
	Revision            int64

	o      Options
	files  segfile.Files
	sizes  map[string]int64
	member format.Identity
	chain  format.Chain
	// lost is set while it is not known what the next file has to follow.
	lost bool
}

// Start begins the inspection of the log in a directory. It fails with fs.ErrNotExist if there is
// none.
func Start(o Options) (*Inspection, error) {
	o.FS = vfs.ReadOnly(o.FS)
	in := &Inspection{o: o, sizes: map[string]int64{}, chain: format.Chain{NextID: 1}}
	ok, err := segfile.Exists(o.FS, o.Dir)
	if err == nil && !ok {
		err = fmt.Errorf("history: %s: %w", o.Dir, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	if in.files, err = segfile.List(o.FS, o.Dir); err != nil {
		return nil, err
	}
	if o.SealedOnly {
		in.files.Logs, in.files.Temp, in.files.Obsolete = nil, nil, nil
	}
	for _, f := range in.files.Sealed {
		in.addSize(f.Name)
	}
	for _, name := range in.files.Obsolete {
		in.addSize(name)
	}
	for _, id := range in.files.Logs {
		in.addSize(format.SegmentName(id))
	}
	for _, name := range in.files.Temp {
		in.addSize(name)
	}
	return in, nil
}

func (in *Inspection) path(name string) string { return filepath.Join(in.o.Dir, name) }

func (in *Inspection) addSize(name string) {
	if st, err := in.o.FS.Stat(in.path(name)); err == nil {
		in.sizes[name] = st.Size()
		in.Bytes += st.Size()
	}
}

// Files reads every byte of the files that means something, one file after another, and yields what
// it found. It ends early when ctx is done. It is called once.
func (in *Inspection) Files(ctx context.Context) iter.Seq[File] {
	return func(yield func(File) bool) {
		for i := range in.files.Sealed {
			for _, f := range in.readSealed(ctx, &in.files.Sealed[i]) {
				if ctx.Err() != nil || !yield(f) {
					return
				}
			}
		}
		for _, f := range in.readLogs() {
			if ctx.Err() != nil || !yield(f) {
				return
			}
		}
		for _, name := range in.files.Obsolete {
			if !yield(File{Name: name, Kind: KindObsolete, Bytes: in.sizes[name]}) {
				return
			}
		}
		for _, name := range in.files.Temp {
			if !yield(File{Name: name, Kind: KindTemporary, Bytes: in.sizes[name]}) {
				return
			}
		}
	}
}

// readSealed reads a sealed segment. It returns the missing segments before it as well.
func (in *Inspection) readSealed(ctx context.Context, f *segfile.Name) []File {
	out := File{Name: f.Name, Kind: KindSealed, Bytes: in.sizes[f.Name], FirstID: f.First,
		LastID: f.Last}
	var before []File
	if !in.o.SealedOnly {
		before = in.findGap(f.First)
	}
	s, err := in.openSealed(f, &out)
	if err == nil {
		defer s.Release()
		foot := s.Footer()
		out.Batches, out.Records, out.Metas = int(foot.Batches), int(foot.Records), int(foot.Metas)
		out.First, out.Last, out.Applied = foot.First, foot.Last, foot.Applied
		err = errors.Join(in.checkFollows(s), s.Check(ctx))
		if err == nil {
			err = s.EachMeta(func(uint32, format.Meta) {})
		}
		in.chain.AdvanceSealed(foot)
		in.noteEnd()
		in.lost = false
		out.Err = in.pinpoint(firstError(err))
	} else {
		in.chain.NextID, in.lost = f.Last+1, true
		out.Err = in.pinpoint(err)
	}
	return append(before, out)
}

// pinpoint makes an error about a file more exact.
func (in *Inspection) pinpoint(err error) error {
	var c *format.CorruptError
	if !errors.As(err, &c) {
		return err
	}
	file, oerr := in.o.FS.Open(c.File)
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

// firstError returns the first of joined errors.
func firstError(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		if errs := j.Unwrap(); len(errs) > 0 {
			return firstError(errs[0])
		}
	}
	return err
}

func (in *Inspection) openSealed(f *segfile.Name, out *File) (*segfile.File, error) {
	path := in.path(f.Name)
	file, err := in.o.FS.Open(path)
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
	err := in.member.Check(h, path)
	in.ClusterID, in.MemberID = in.member.ClusterID, in.member.MemberID
	return err
}

// findGap returns the missing segments before first.
func (in *Inspection) findGap(first uint64) []File {
	if first <= in.chain.NextID {
		return nil
	}
	out := File{Kind: KindMissing, FirstID: in.chain.NextID, LastID: first - 1}
	out.Name = format.SegmentName(out.FirstID)
	if out.FirstID < out.LastID {
		out.Name = format.SealedName(out.FirstID, out.LastID, 0)
	}
	out.Err = format.Corrupt(in.path(out.Name), 0, "segments %x to %x are missing",
		out.FirstID, out.LastID)
	in.lost, in.chain.NextID = true, first
	return []File{out}
}

// checkFollows returns an error if a sealed segment does not continue the one before it.
func (in *Inspection) checkFollows(s *segfile.File) error {
	if in.o.SealedOnly || in.lost {
		return nil
	}
	if s.Footer().FirstID < in.chain.NextID {
		return format.Corrupt(s.Path(), 0, "segment %x is there twice", s.Footer().FirstID)
	}
	return in.chain.CheckSealed(s.Footer(), s.Path())
}

func (in *Inspection) noteEnd() { in.Applied, in.Revision = in.chain.Applied, in.chain.Last.Main }

// readLogs reads the segments that are not sealed, like history's Open.
func (in *Inspection) readLogs() []File {
	out := make([]File, 0, len(in.files.Logs)+1)
	grows := -1 // the last one with a batch
	ended := false
	for _, id := range in.files.Logs {
		out = append(out, in.findGap(id)...)
		f := File{Name: format.SegmentName(id), Bytes: in.sizes[format.SegmentName(id)],
			Kind: KindAllocated, FirstID: id, LastID: id}
		seg, err := in.openLog(id, &f)
		if err == nil && !ended {
			err = in.loadLog(seg, &f)
		}
		if seg != nil {
			switch {
			case seg.Batches == 0:
				ended = true
			case grows >= 0:
				out[grows].Kind = KindFull
				fallthrough
			default:
				f.Kind, grows = KindOpen, len(out)
			}
			if err == nil {
				// A segment that another one follows has no torn tail: the chain proves it.
				err = seg.ExamineTail()
				f.Torn = seg.Torn()
			}
			seg.Memory = growing.Memory{}
			_ = seg.File.Close()
		} else {
			ended, in.lost = false, true
			f.Kind = KindOpen
		}
		in.chain.NextID = id + 1
		f.Err = in.pinpoint(err)
		out = append(out, f)
	}
	for i := range out {
		if out[i].Kind == KindFull {
			out[i].Torn = 0 // Open seals it
		}
	}
	if grows < 0 && len(in.files.Sealed) == 0 && len(in.files.Logs) > 0 {
		if f := &out[len(out)-1]; f.Err == nil {
			f.Err = format.Corrupt(in.path(f.Name), format.HeaderSize, "there is no batch")
		}
	}
	return out
}

// openLog opens a segment that is not sealed; nil if it has no good header.
func (in *Inspection) openLog(id uint64, f *File) (*growing.Segment, error) {
	path := in.path(format.SegmentName(id))
	if file, err := in.o.FS.Open(path); err == nil {
		f.Version = peekVersion(file)
		_ = file.Close()
	}
	file, err := in.o.FS.OpenWrite(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	seg, err := growing.Open(file, path, id, &in.member)
	in.ClusterID, in.MemberID = in.member.ClusterID, in.member.MemberID
	return seg, err
}

// loadLog reads the batches of a segment that is not sealed.
func (in *Inspection) loadLog(seg *growing.Segment, f *File) error {
	// What it should continue may be unknown. Then its own record is trusted.
	if in.lost && seg.TrustChain(&in.chain) {
		in.lost = false
	}
	err := seg.Load(&in.chain, func(format.Meta) {})
	f.Batches, f.Records, f.Metas = int(seg.Batches), seg.Memory.Len(), seg.Metas()
	f.First, f.Last, f.Applied = seg.First, seg.Last, seg.Applied
	if seg.Batches > 0 {
		in.noteEnd()
	} else {
		f.Applied = format.Applied{}
	}
	return err
}
