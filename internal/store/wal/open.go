package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs"
)

const createName = "create" + tempSuffix

// Exists reports whether there is a log in dir, whatever its state.
func Exists(fsys vfs.FS, dir string) (bool, error) {
	ids, err := segmentIDs(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(ids) > 0, err
}

// segmentIDs returns the ids in the names of segments and spares, ascending.
func segmentIDs(fsys vfs.FS, dir string) ([]uint64, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	var ids []uint64
	for _, n := range names {
		if id, ok := parseName(n); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Create makes a log that begins after start, and opens it. After a crash, all of it exists or
// nothing. It fails with fs.ErrExist if there is a log.
func Create(o Options, start Start) (*WAL, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	there, err := Exists(o.FS, o.Dir)
	if err == nil && there {
		err = fs.ErrExist
	}
	if err != nil {
		return nil, fmt.Errorf("wal: create in %s: %w", o.Dir, err)
	}
	// The segment gets its name, and so the log begins to exist, when it is whole.
	if err := createFirst(&o, start); err != nil {
		return nil, fmt.Errorf("wal: create in %s: %w", o.Dir, err)
	}
	return Open(o)
}

func createFirst(o *Options, start Start) error {
	temp := filepath.Join(o.Dir, createName)
	if err := o.FS.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := o.FS.Create(temp)
	if err != nil {
		return err
	}
	h := segmentHeader{version: Version, id: 1, owner: o.ID, start: start, salt: newSalt()}
	err = file.Preallocate(o.leastSegment())
	if err == nil {
		_, err = file.WriteAt(h.encode(), 0)
	}
	if err == nil && !o.NoSync {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	// Open makes the name durable.
	return o.FS.Rename(temp, segmentPath(o.Dir, 1))
}

// opening is a log that is being opened.
type opening struct {
	w       *WAL
	files   []*segment // of all ids, ascending
	heads   []segmentHeader
	valid   []bool // whether the header belongs to its file
	last    int    // the last of the files that is a segment; the rest are spares
	scan    scanner
	counted counted
}

// seen counts what apply took in.
type counted struct {
	groups, entries int
	first, last     uint64 // indexes of the first and last entry
}

// Open opens the log and reads all of it. It cuts a torn tail. It fails with fs.ErrNotExist if
// there is no log, and with errors wrapping ErrIdentity, ErrVersion, vfs.ErrLocked (another process
// has it open) or kv.ErrCorrupt (also if it does not fit Options.Applied). Then nothing was
// changed.
func Open(o Options) (*WAL, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	pinned, err := vfs.Pin(o.FS, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("wal: open %s: %w", o.Dir, err)
	}
	// The lock of the data directory is a file, which somebody may remove, and is not in the
	// directory of the log.
	if err := pinned.LockDir(); err != nil {
		pinned.Release()
		return nil, fmt.Errorf("wal: open %s: %w", o.Dir, err)
	}
	o.FS = pinned
	w := &WAL{o: o, dir: pinned}
	w.stats.init()
	w.run = func(step func()) { w.background.Go(step) }
	w.spares.o = &w.o
	w.spares.size.Store(o.leastSegment())
	w.wr.begun = time.Now()
	p := &opening{w: w}
	if err := p.openFiles(); err != nil {
		for _, s := range p.files {
			err = errors.Join(err, s.release())
		}
		pinned.Release()
		return nil, fmt.Errorf("wal: open %s: %w", o.Dir, err)
	}
	o.Logger.Info("opened the raft log", "dir", o.Dir, "segments", len(w.mu.segs), "spares",
		w.spares.count(),
		"first", w.mu.start.Index+1, "last", w.last(), "bytes", w.mu.bytes)
	return w, nil
}

func (p *opening) openFiles() error {
	if err := p.readHeaders(); err != nil {
		return err
	}
	if err := p.checkFiles(); err != nil {
		return err
	}
	w := p.w
	w.mu.start, w.mu.hard = p.heads[0].start, p.heads[0].hard
	w.mu.segs = slices.Clone(p.files[:p.last+1])
	w.mu.oldest = p.files[0].id
	for i := range p.last {
		if err := p.replaySealed(i); err != nil {
			return err
		}
	}
	if err := p.replayLast(); err != nil {
		return err
	}
	return p.keepSpares()
}

// readHeaders opens every file that has the name of a segment and reads its header.
func (p *opening) readHeaders() error {
	o := &p.w.o
	ids, err := segmentIDs(o.FS, o.Dir)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return fmt.Errorf("no segments: %w", fs.ErrNotExist)
	}
	p.last = -1
	block := make([]byte, headerSize)
	for i, id := range ids {
		file, err := o.FS.OpenWrite(segmentPath(o.Dir, id))
		if err != nil {
			return err
		}
		s := newSegment(o, id, file, 0)
		p.files = append(p.files, s)
		h, valid, err := s.readHeader(block)
		if err != nil {
			return err
		}
		p.heads, p.valid = append(p.heads, h), append(p.valid, valid)
		if valid {
			p.last = i
		}
	}
	return nil
}

// readHeader returns the header of a file, and whether it is a header of this segment in this
// version. It learns the size of the file and the seed of its groups. block is memory for one
// header.
func (s *segment) readHeader(block []byte) (h segmentHeader, valid bool, err error) {
	if s.size, err = s.file.Size(); err != nil || s.size < headerSize {
		return h, false, err
	}
	if _, err := s.file.ReadAt(block, 0); err != nil {
		return h, false, err
	}
	h, err = decodeHeader(block)
	switch valid = err != errNoHeader && h.id == s.id; {
	case !valid:
		return segmentHeader{}, false, nil
	case err != nil:
		return h, false, fmt.Errorf("%s: %w", s.path, err)
	}
	s.seed = groupSeed(h.owner, h.id, h.salt)
	return h, true, nil
}

// salt returns the salt of the log, 0 if no file is a segment.
func (p *opening) salt() uint64 {
	if p.last < 0 {
		return 0
	}
	return p.heads[p.last].salt
}

// checkFiles distinguishes segments from spares and checks that the segments make a chain.
func (p *opening) checkFiles() error {
	for i := range p.files {
		if err := p.checkPlace(i); err != nil {
			return err
		}
	}
	return nil
}

// checkPlace checks that a file is a spare, or a segment that belongs where it is.
func (p *opening) checkPlace(i int) error {
	s := p.files[i]
	if i > p.last && i > 0 {
		return p.checkSpare(i)
	}
	if !p.valid[i] {
		return s.corrupt(0, "the header is bad")
	}
	if i > 0 && s.id != p.files[i-1].id+1 {
		return p.files[i-1].corrupt(p.files[i-1].size, "the segment after it, %s, is missing",
			segmentName(p.files[i-1].id+1))
	}
	if owner := p.heads[i].owner; owner != p.w.o.ID {
		return fmt.Errorf("%s: %w: it is of cluster %x, member %x, not of cluster %x, member %x",
			s.path,
			ErrIdentity, owner.ClusterID, owner.MemberID, p.w.o.ID.ClusterID, p.w.o.ID.MemberID)
	}
	if off := p.heads[i].prevEnd; i > 0 &&
		(off < headerSize || off > p.files[i-1].size || off%groupAlign != 0) {
		return s.corrupt(0, "it says that the segment before it ends at %d", off)
	}
	return nil
}

// checkSpare checks that a file without its own header has no groups either: they are written only
// after the header is durable.
func (p *opening) checkSpare(i int) error {
	s := p.files[i]
	s.seed = groupSeed(p.w.o.ID, s.id, p.salt())
	_, _, own, err := p.scan.pointAt(s).readGroup(headerSize)
	if err == nil && own {
		err = s.corrupt(0, "the header is bad, and records follow it")
	}
	return err
}

// replaySealed applies a segment that has a successor: it was durable up to the end that the
// successor records.
func (p *opening) replaySealed(i int) error {
	s, next := p.files[i], &p.heads[i+1]
	sc := p.scan.pointAt(s)
	off := int64(headerSize)
	for off < next.prevEnd {
		g, items, ok, err := sc.readGroup(off)
		if err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
		if !ok {
			return s.corrupt(off, "a record is bad; the segment was durable up to %d", next.prevEnd)
		}
		if err := p.applyGroup(s, off, &g, items); err != nil {
			return err
		}
		off += groupSize(int(g.length))
	}
	if off != next.prevEnd {
		return s.corrupt(next.prevEnd, "a record reaches beyond the end of the segment")
	}
	w := p.w
	if w.last() != next.start.Index || w.lastTerm() != next.start.Term || w.mu.hard != next.hard {
		return p.files[i+1].corrupt(0,
			"it continues from entry %d of term %d, but the segment before it ends with %d of term %d",
			next.start.Index, next.start.Term, w.last(), w.lastTerm())
	}
	return nil
}

// readLast reads the last segment. It returns where its groups end, up to where they were durable
// according to the last of them, and where the valid groups of a torn tail end, 0 if there are
// none.
func (p *opening) readLast() (off, synced, end int64, err error) {
	s := p.files[p.last]
	if off, synced, err = p.applyGroups(s); err != nil {
		return off, synced, 0, err
	}
	later, end, err := p.scan.searchGroups(off)
	if err != nil {
		return off, synced, 0, fmt.Errorf("%s: %w", s.path, err)
	}
	if later > off {
		return off, synced, 0,
			s.corrupt(off, "a record is bad; the segment was durable up to %d", later)
	}
	return off, synced, end, nil
}

// applyGroups applies the groups of a segment up to the first that is not whole.
func (p *opening) applyGroups(s *segment) (off, synced int64, err error) {
	sc := p.scan.pointAt(s)
	for off = headerSize; ; {
		g, items, ok, err := sc.readGroup(off)
		if err != nil {
			return off, synced, fmt.Errorf("%s: %w", s.path, err)
		}
		if !ok {
			return off, synced, nil
		}
		if err := p.applyGroup(s, off, &g, items); err != nil {
			return off, synced, err
		}
		synced, p.w.wr.clean = g.synced, g.count == 0
		off += groupSize(int(g.length))
	}
}

// replayLast applies the last segment, cuts its torn tail and makes the rest durable.
func (p *opening) replayLast() error {
	w, s := p.w, p.files[p.last]
	off, synced, end, err := p.readLast()
	if err == nil {
		err = w.checkCovers(w.o.Applied)
	}
	if err != nil {
		return err
	}
	if err := p.makeDurable(s, synced, off, end); err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	w.wr.active, w.wr.off, w.wr.synced = s, off, off
	w.wr.salt = p.salt()
	w.left.Store(s.size - off)
	if w.o.NoSync {
		w.wr.synced = headerSize
	}
	w.mu.durable = place{s.id, w.wr.synced}
	return nil
}

// checkCovers checks that the log holds a position or begins right after it, unless at is zero.
// Files that are lost, or took each other's place, at the end of the log look like spares: only
// this check finds them.
func (w *WAL) checkCovers(at Start) error {
	first, last := w.mu.start.Index+1, w.last()
	switch {
	case at == (Start{}):
		return nil
	case at.Index > last:
		return fmt.Errorf("%w: the store is at index %d and the raft log ends at %d: entries were lost that had been acknowledged",
			kv.ErrCorrupt, at.Index, last)
	case at.Index+1 < first:
		return fmt.Errorf("%w: the store is at index %d and the raft log begins at %d: the entries between are lost",
			kv.ErrCorrupt, at.Index, first)
	}
	term, err := w.Term(at.Index)
	if err == nil && term != at.Term {
		err = fmt.Errorf("%w: index %d has term %d in the store and %d in the raft log",
			kv.ErrCorrupt, at.Index, at.Term, term)
	}
	return err
}

// makeDurable makes the last segment durable up to off, and overwrites the valid groups of a torn
// tail up to end, because new groups before them would bring them back to life.
//
// The bytes between synced and off may be in the page cache only, and marked clean there after a
// sync that failed in an earlier process. Therefore they are written again.
func (p *opening) makeDurable(s *segment, synced, off, end int64) error {
	if p.w.o.NoSync && end <= off {
		return nil
	}
	sc := p.scan.pointAt(s)
	for at := synced; at < off; {
		b, err := sc.readWindow(at, int(min(scanBytes, off-at)))
		if err != nil {
			return err
		}
		if _, err := s.file.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(len(b))
	}
	if end > off {
		p.w.o.Logger.Warn("cut a torn tail off the raft log", "file", s.path, "offset",
			off, "end", end)
		zeros := make([]byte, min(scanBytes, end-off))
		for at := off; at < end; at += int64(len(zeros)) {
			if _, err := s.file.WriteAt(zeros[:min(int64(len(zeros)), end-at)], at); err != nil {
				return err
			}
		}
	}
	if p.w.o.NoSync {
		return nil
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	// The names of segments and spares may be the work of a process that died before it synced.
	return p.w.o.FS.SyncDir(p.w.o.Dir)
}

// applyGroup applies the items of a group.
func (p *opening) applyGroup(s *segment, off int64, g *groupHeader, items []byte) error {
	w := p.w
	at := off + groupHeaderSize
	p.counted.groups++
	for range g.count {
		it, size, err := parseItem(items)
		if err != nil {
			return s.corrupt(at, "a record cannot be read: %v", err)
		}
		switch it.kind {
		case kindEntry:
			if p.counted.entries++; p.counted.entries == 1 {
				p.counted.first = it.index
			}
			p.counted.last = it.index
			sl := slot{term: it.term, off: at, seg: uint32(s.id), size: uint32(size),
				crc: itemCRC(items[:size]), flags: it.flags, typ: byte(it.typ)}
			switch {
			case it.index <= w.mu.start.Index:
				// It replaced entries of segments that are gone. Then the entry before the first
				// that was kept is this one or a later one.
				w.resetTo(Start{it.index, it.term})
			case it.index > w.last()+1:
				return s.corrupt(at, "entry %d follows entry %d", it.index, w.last())
			default:
				w.putSlot(it.index, sl)
			}
		case kindHardState:
			w.mu.hard = it.hard
		case kindReset:
			w.resetTo(it.start)
		}
		items, at = items[size:], at+int64(size)
	}
	if len(items) > 0 {
		return s.corrupt(at, "a record has %d bytes too many", len(items))
	}
	return nil
}

// keepSpares keeps the spares that follow the last segment without a gap, and removes the others. A
// crash during recycling leaves those.
func (p *opening) keepSpares() error {
	w := p.w
	next := p.files[p.last].id + 1
	for _, s := range p.files[p.last+1:] {
		err := error(nil)
		if s.id == next && len(w.spares.mu.files) < maxSpares && s.size <= w.o.SegmentBytes {
			size := max(s.size, w.o.leastSegment())
			err = s.file.Preallocate(size)
			if err == nil {
				s.size = size
				w.spares.setReady(append(w.spares.mu.files, s))
				next++
				continue
			}
		}
		// A spare without room for it is only in the way, and so is a spare after a gap.
		_ = s.release()
		if err := w.o.FS.Remove(s.path); err != nil {
			return err
		}
	}
	w.spares.mu.next = next
	names, err := w.o.FS.List(w.o.Dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if strings.HasSuffix(n, tempSuffix) {
			if err := w.o.FS.Remove(filepath.Join(w.o.Dir, n)); err != nil {
				return err
			}
		}
	}
	return nil
}
