package history

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// Open opens an existing log and recovers from a crash: what the crash left of a batch at the end is
// cut. Anything else that is not as it was written is an error that wraps kv.ErrCorrupt. It fails
// with fs.ErrNotExist if there is no log. What Open found is durable when it returns.
func Open(o Options) (*Log, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	switch ok, err := Exists(o.FS, o.Dir); {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("history: %s: %w", o.Dir, fs.ErrNotExist)
	}
	l := newLog(o)
	r := recovery{l: l, known: o.ClusterID != 0 || o.MemberID != 0}
	if err := r.run(); err != nil {
		for _, s := range l.cat.segs {
			if src := s.src.Load(); src.file != nil {
				src.file.Release()
			}
		}
		for _, seg := range r.logs {
			_ = seg.file.Close()
		}
		return nil, err
	}
	l.start()
	return l, nil
}

// recovery is the state of an Open.
type recovery struct {
	l     *Log
	known bool           // the identity is
	logs  []*openSegment // open files that are not sealed

	nextID   uint64 // of the segment that must follow
	chain    uint32 // checksum of the last batch so far
	revision int64
}

func (r *recovery) run() error {
	l := r.l
	files, err := l.list()
	if err != nil {
		return err
	}
	r.nextID = 1
	sealed, obsolete := files.current()
	for _, f := range sealed {
		if err := r.addSealed(f); err != nil {
			return err
		}
	}
	open, err := r.addLogs(files.logs)
	if err != nil {
		return err
	}
	for _, name := range append(files.temp, obsolete...) {
		if err := l.o.FS.Remove(l.path(name)); err != nil {
			return fmt.Errorf("history: remove a leftover: %w", err)
		}
	}
	if open == nil {
		// A crash between the seal of a segment and the first batch of the next one leaves the
		// next one; if that was removed too, a new one serves as well.
		if open, err = l.alloc.prepare(r.nextID); err == nil {
			err = l.alloc.finish(open)
		}
		if err != nil {
			return err
		}
		open.before, open.after = r.chain, r.chain
		open.revision, open.applied = r.revision, l.w.applied
		r.logs = append(r.logs, open)
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.w.seg = open
	l.seal.noteSynced(open, open.end, l.w.applied)
	l.alloc.nextID = open.head.ID + 1
	l.publish()
	return nil
}

// files is what is in the directory, sealed and logs oldest first.
type files struct {
	sealed []sealedFile
	logs   []uint64
	temp   []string
}

type sealedFile struct {
	name        string
	first, last uint64
	generation  uint32
}

func (l *Log) list() (files, error) {
	names, err := l.o.FS.List(l.o.Dir)
	if err != nil {
		return files{}, fmt.Errorf("history: %w", err)
	}
	var f files
	for _, name := range names {
		var s sealedFile
		var id uint64
		switch {
		case name == reserveName:
		case strings.HasSuffix(name, format.TempSuffix):
			f.temp = append(f.temp, name)
		case scanName(name, "%016x-%016x-%08x.seg", &s.first, &s.last, &s.generation) && format.SealedName(s.first, s.last, s.generation) == name:
			s.name = name
			f.sealed = append(f.sealed, s)
		case scanName(name, "%016x.log", &id) && format.SegmentName(id) == name:
			f.logs = append(f.logs, id)
		case strings.HasSuffix(name, format.LogSuffix) || strings.HasSuffix(name, format.SealedSuffix):
			return files{}, format.Corrupt(l.path(name), 0, "this is not a name that a segment has")
		default:
			l.o.Logger.Warn("a file in the history directory does not belong there", "file", l.path(name))
		}
	}
	slices.SortFunc(f.sealed, func(a, b sealedFile) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last), cmp.Compare(b.generation, a.generation))
	})
	slices.Sort(f.logs)
	return f, nil
}

// current returns the sealed files that count and the names of those that do not: a merged segment
// replaces those it was made of, whose ids it covers in a higher generation.
func (f *files) current() (sealed []sealedFile, obsolete []string) {
	for _, s := range f.sealed {
		if n := len(sealed); n > 0 && s.last <= sealed[n-1].last && s.generation < sealed[n-1].generation {
			obsolete = append(obsolete, s.name)
			continue
		}
		sealed = append(sealed, s)
	}
	return sealed, obsolete
}

func scanName(name, format string, to ...any) bool {
	n, err := fmt.Sscanf(name, format, to...)
	return err == nil && n == len(to)
}

// addSealed opens the next sealed segment.
func (r *recovery) addSealed(f sealedFile) error {
	l := r.l
	path := l.path(f.name)
	if f.first != r.nextID {
		return format.Corrupt(path, 0, "the segment that begins with %016x is missing, or this one is there twice", r.nextID)
	}
	file, err := l.o.FS.Open(path)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	s, h, err := segfile.Open(file, path)
	if err != nil {
		return err
	}
	foot := s.Footer()
	seg := &segment{id: f.first, first: foot.First, last: foot.Last}
	seg.size.Store(foot.FileSize())
	seg.src.Store(&source{file: s})
	// Adopted at once, so that it is released if a later step fails.
	seg.last = foot.Last
	if foot.Records == 0 {
		seg.last = l.w.last
	}
	fits := foot.Records == 0 || l.w.last.Less(foot.First)
	l.adopt(seg)
	if err := r.identify(&h, path); err != nil {
		return err
	}
	if foot.Before != r.chain {
		return format.Corrupt(path, 0, "the segment does not continue the one before it")
	}
	if !fits {
		return format.Corrupt(path, 0, "the segment begins at revision %d/%d, which is not above that of the one before it", foot.First.Main, foot.First.Sub)
	}
	r.advance(f.last+1, seg.last, foot.Revision, foot.Applied, foot.After)
	return s.EachMeta(func(_ uint32, m Meta) {
		l.w.metas.apply(m)
		l.cat.metas.Note(f.last, &m)
	})
}

// advance notes the end of a segment.
func (r *recovery) advance(nextID uint64, last kv.Rev, revision int64, a Applied, chain uint32) {
	if revision > last.Main {
		last = kv.Rev{Main: revision}
	}
	r.l.w.last, r.l.w.applied = last, a
	r.nextID, r.chain, r.revision = nextID, chain, revision
}

func (r *recovery) identify(h *format.Header, path string) error {
	o := &r.l.o
	if !r.known {
		o.ClusterID, o.MemberID, r.known = h.ClusterID, h.MemberID, true
	}
	if h.ClusterID != o.ClusterID || h.MemberID != o.MemberID {
		return fmt.Errorf("%w: %s is of cluster %x and member %x, not of cluster %x and member %x",
			ErrIdentity, path, h.ClusterID, h.MemberID, o.ClusterID, o.MemberID)
	}
	return nil
}

// addLogs opens what is not sealed and returns the segment to go on with, nil if there is none. All
// but the last one with a batch are whole and get sealed; the ones after it are removed.
func (r *recovery) addLogs(ids []uint64) (open *openSegment, err error) {
	l := r.l
	if len(ids) == 0 && len(l.cat.segs) == 0 {
		return nil, format.Corrupt(l.o.Dir, 0, "there is no segment")
	}
	for i, id := range ids {
		if id != r.nextID+uint64(i) {
			return nil, format.Corrupt(l.path(format.SegmentName(id)), 0, "the segment %016x is missing, or this one is there twice", r.nextID+uint64(i))
		}
		seg, err := r.openLog(id)
		if err != nil {
			return nil, err
		}
		r.logs = append(r.logs, seg)
	}
	used := 0
	for _, seg := range r.logs {
		if err := r.load(seg); err != nil {
			return nil, err
		}
		if seg.batches == 0 {
			break
		}
		used++
	}
	if used == 0 && len(l.cat.segs) == 0 {
		return nil, format.Corrupt(r.logs[0].path, format.HeaderSize, "there is no batch")
	}
	if used == 0 && len(r.logs) > 0 {
		used = 1 // nothing was committed since the last seal: go on in the empty one
	}
	for i, seg := range r.logs {
		if err := r.endOf(seg, i >= used-1); err != nil {
			return nil, err
		}
	}
	for len(r.logs) > used {
		last := r.logs[len(r.logs)-1]
		if last.end > format.HeaderSize {
			l.o.Logger.Warn("dropped a history segment whose predecessor lost its end in a crash", "file", last.path)
		}
		_ = last.file.Close()
		r.logs = r.logs[:len(r.logs)-1]
		if err := l.o.FS.Remove(last.path); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		// One after another, so that a crash leaves no hole.
		if err := l.syncDir(); err != nil {
			return nil, err
		}
	}
	for len(r.logs) > 1 {
		seg := r.logs[0]
		if err := r.makeDurable(seg, false); err != nil {
			return nil, err
		}
		l.retire(seg)
		if err := l.seal.seal(seg); err != nil {
			return nil, err
		}
		r.logs = r.logs[1:]
	}
	if len(r.logs) == 0 {
		return nil, nil
	}
	return r.logs[0], r.makeDurable(r.logs[0], true)
}

func (r *recovery) openLog(id uint64) (*openSegment, error) {
	path := r.l.path(format.SegmentName(id))
	file, err := r.l.o.FS.OpenWrite(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	seg := &openSegment{path: path, file: file, seg: &segment{id: id}, end: format.HeaderSize}
	if seg.head, err = segfile.ReadHeader(file, path); err == nil {
		err = r.identify(&seg.head, path)
	}
	if err == nil && seg.head.ID != id {
		err = format.Corrupt(path, 0, "the file is %s by its content", format.SegmentName(seg.head.ID))
	}
	if err == nil {
		seg.alloc, err = file.Size()
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	seg.bodySum = seg.head.Sum
	seg.synced.Store(format.HeaderSize)
	return seg, nil
}

// endOf examines the bytes after the last good batch of a segment. If that is the end of the log, a later batch that
// records a sync beyond it proves damage; otherwise it is a torn tail. It sets dirty to the end of the bytes
// that are not zero.
func (r *recovery) endOf(seg *openSegment, last bool) error {
	if !last {
		seg.dirty = seg.alloc
		return nil
	}
	step := max(min(1<<20, seg.alloc-int64(seg.end)), 1)
	zero := make([]byte, step)
	buf := make([]byte, step+format.BatchHeaderSize)
	for off := int64(seg.end); off < seg.alloc; off += step {
		b := buf[:min(int64(len(buf)), seg.alloc-off)]
		if err := segfile.ReadFull(seg.file, seg.path, b, off); err != nil {
			return err
		}
		own := b[:min(step, int64(len(b)))]
		if bytes.Equal(own, zero[:len(own)]) {
			continue
		}
		seg.dirty = off + int64(len(bytes.TrimRight(own, "\x00")))
		for at := 0; ; {
			i := bytes.Index(b[at:], []byte(format.BatchMagic))
			if i < 0 {
				break
			}
			from := at + i - 4
			at += i + 1
			if from < 0 || int64(from) >= step || (off+int64(from))%8 != 0 {
				continue
			}
			found, err := r.proof(seg, b[from:], off+int64(from))
			if err != nil {
				return err
			}
			if found {
				return format.Corrupt(seg.path, int64(seg.end), "there is no good batch, but the one at offset %d says that this had been synced", off+int64(from))
			}
		}
	}
	return nil
}

// proof says whether b, bytes of the file at off, begins with the header of a good batch that records
// a sync beyond the end of the segment.
func (r *recovery) proof(seg *openSegment, b []byte, off int64) (bool, error) {
	h, ok := format.DecodeBatchHeader(b, seg.alloc-off)
	if !ok || h.Synced <= seg.end {
		return false, nil
	}
	batch := make([]byte, h.Length)
	if err := segfile.ReadFull(seg.file, seg.path, batch, off); err != nil {
		return false, err
	}
	return h.Check(batch, seg.head.Sum), nil
}

// makeDurable makes a segment durable as it was read. The bytes after its end are overwritten with zeros,
// so that they can never pass for a batch again. What is not known to be synced is written
// once more: a sync that failed in an earlier life may have left it in memory only, marked clean.
func (r *recovery) makeDurable(seg *openSegment, open bool) error {
	wrap := func(err error) error { return fmt.Errorf("history: recover %s: %w", seg.path, err) }
	if open {
		if seg.dirty > int64(seg.end) {
			r.l.o.Logger.Warn("cut a torn history batch", "file", seg.path, "offset", seg.end, "bytes", seg.dirty-int64(seg.end))
		}
		zero := make([]byte, min(max(seg.dirty-int64(seg.end), 0), 1<<20))
		for off := int64(seg.end); off < seg.dirty; off += int64(len(zero)) {
			if _, err := seg.file.WriteAt(zero[:min(int64(len(zero)), seg.dirty-off)], off); err != nil {
				return wrap(err)
			}
		}
		if least := min(r.l.o.SegmentBytes, smallSegment); seg.alloc < least {
			switch err := seg.file.Preallocate(least); {
			case err == nil:
				seg.alloc = least
			case !kv.Shortage(vfs.MarkShortage(err)):
				return wrap(err)
			}
		}
	}
	for _, c := range seg.mem.chunks {
		from, to := max(seg.synced.Load(), c.start), min(seg.end, c.start+uint32(len(c.buf)))
		if from < to {
			if _, err := seg.file.WriteAt(c.buf[from-c.start:to-c.start], int64(from)); err != nil {
				return wrap(err)
			}
		}
	}
	if !open {
		return nil // the seal syncs it
	}
	return r.l.syncFile(seg.file, seg.path)
}
