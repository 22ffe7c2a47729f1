package history

import (
	"fmt"
	"io/fs"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/growing"
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
	pinned, err := vfs.Pin(o.FS, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	// Recovery changes files, and somebody may have removed the lock of the data directory, which is a file.
	if err := pinned.LockDir(); err != nil {
		pinned.Release()
		return nil, fmt.Errorf("history: %w", err)
	}
	o.FS = pinned
	l := newLog(o)
	l.dir = pinned
	r := recovery{l: l, member: l.identity()}
	if err := r.run(); err != nil {
		for _, s := range l.cat.segs {
			if src := s.src.Load(); src.file != nil {
				src.file.Release()
			}
		}
		for _, seg := range r.logs {
			_ = seg.File.Close()
		}
		pinned.Release()
		return nil, err
	}
	l.start()
	return l, nil
}

// recovery is the state of an Open.
type recovery struct {
	l      *Log
	member format.Identity
	logs   []*openSegment // open files that are not sealed
	chain  format.Chain
}

func (r *recovery) run() error {
	l := r.l
	files, err := segfile.List(l.o.FS, l.o.Dir)
	if err != nil {
		return err
	}
	for _, name := range files.Unknown {
		l.o.Logger.Warn("a file in the history directory does not belong there", "file", l.path(name))
	}
	r.chain.NextID = 1
	for _, f := range files.Sealed {
		if err := r.addSealed(f); err != nil {
			return err
		}
	}
	open, err := r.addLogs(files.Logs)
	if err == nil {
		err = l.syncDir() // a killed process may not have synced the name of a merged segment: what it replaces is removed after that
	}
	if err != nil {
		return err
	}
	for _, name := range append(files.Temp, files.Obsolete...) {
		if err := l.o.FS.Remove(l.path(name)); err != nil {
			return fmt.Errorf("history: remove a leftover: %w", err)
		}
	}
	if open == nil {
		// A crash between the seal of a segment and the first batch of the next one leaves the
		// next one; if that was removed too, a new one serves as well.
		if open, err = l.alloc.prepare(r.chain.NextID); err == nil {
			err = l.alloc.finish(open)
		}
		if err != nil {
			return err
		}
		open.FollowChain(&r.chain)
		r.logs = append(r.logs, open)
	}
	l.w.seg, l.w.last, l.w.applied = open, r.chain.Last, r.chain.Applied
	l.seal.noteSynced(open, open.End, l.w.applied)
	l.alloc.nextID = open.Head.ID + 1
	l.publish()
	return nil
}

// addSealed opens the next sealed segment.
func (r *recovery) addSealed(f segfile.Name) error {
	l := r.l
	path := l.path(f.Name)
	if f.First != r.chain.NextID {
		return format.Corrupt(path, 0, "the segment that begins with %016x is missing, or this one is there twice", r.chain.NextID)
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
	seg := &segment{id: f.First, first: foot.First, last: foot.Last}
	seg.size.Store(foot.FileSize())
	seg.src.Store(&source{file: s})
	if foot.Records == 0 {
		seg.last = r.chain.Last
	}
	// Adopted at once, so that it is released if a later step fails.
	l.adopt(seg)
	if err := r.identify(&h, path); err != nil {
		return err
	}
	if err := r.chain.CheckSealed(foot, path); err != nil {
		return err
	}
	r.chain.AdvanceSealed(foot)
	return s.EachMeta(func(_ uint32, m Meta) { r.addMeta(f.Last, m) })
}

// addMeta adds a meta record of segment id.
func (r *recovery) addMeta(id uint64, m Meta) {
	r.l.w.metas.Apply(m)
	r.l.w.metas.Commit()
	r.l.cat.metas.Note(id, &m)
}

func (r *recovery) identify(h *format.Header, path string) error {
	err := r.member.Check(h, path)
	r.l.o.ClusterID, r.l.o.MemberID = r.member.ClusterID, r.member.MemberID
	return err
}

// addLogs opens what is not sealed and returns the segment to go on with, nil if there is none. All
// but the last one with a batch are whole and get sealed; the ones after it are removed.
func (r *recovery) addLogs(ids []uint64) (open *openSegment, err error) {
	l := r.l
	if len(ids) == 0 && len(l.cat.segs) == 0 {
		return nil, format.Corrupt(l.o.Dir, 0, "there is no segment")
	}
	for i, id := range ids {
		if id != r.chain.NextID+uint64(i) {
			return nil, format.Corrupt(l.path(format.SegmentName(id)), 0, "the segment %016x is missing, or this one is there twice", r.chain.NextID+uint64(i))
		}
		seg, err := r.openLog(id)
		if err != nil {
			return nil, err
		}
		r.logs = append(r.logs, seg)
	}
	used := 0
	for _, seg := range r.logs {
		if err := seg.Load(&r.chain, func(m Meta) { r.addMeta(seg.Head.ID, m) }); err != nil {
			return nil, err
		}
		if seg.Batches == 0 {
			break
		}
		used++
	}
	if used == 0 && len(l.cat.segs) == 0 {
		return nil, format.Corrupt(r.logs[0].Path, format.HeaderSize, "there is no batch")
	}
	if used == 0 && len(r.logs) > 0 {
		used = 1 // nothing was committed since the last seal: go on in the empty one
	}
	for _, seg := range r.logs[max(used-1, 0):] {
		if err := seg.ExamineTail(); err != nil {
			return nil, err
		}
	}
	for len(r.logs) > used {
		last := r.logs[len(r.logs)-1]
		if last.End > format.HeaderSize {
			l.o.Logger.Warn("dropped a history segment whose predecessor lost its end in a crash", "file", last.Path)
		}
		_ = last.File.Close()
		r.logs = r.logs[:len(r.logs)-1]
		if err := l.o.FS.Remove(last.Path); err != nil {
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
	seg, err := growing.Open(file, path, id, &r.member)
	if err != nil {
		return nil, err
	}
	r.l.o.ClusterID, r.l.o.MemberID = r.member.ClusterID, r.member.MemberID
	return &openSegment{Segment: seg, seg: &segment{id: id}}, nil
}

// makeDurable makes a segment durable as it was read. The open one gets the space of a small segment.
func (r *recovery) makeDurable(seg *openSegment, open bool) error {
	wrap := func(err error) error { return fmt.Errorf("history: recover %s: %w", seg.Path, err) }
	if open {
		if n := seg.Torn(); n > 0 {
			r.l.o.Logger.Warn("cut a torn history batch", "file", seg.Path, "offset", seg.End, "bytes", n)
		}
		if err := seg.ClearTail(); err != nil {
			return wrap(err)
		}
		if least := min(r.l.o.SegmentBytes, smallSegment); seg.Alloc < least {
			switch err := seg.File.Preallocate(least); {
			case err == nil:
				seg.Alloc = least
			case !kv.Shortage(vfs.MarkShortage(err)):
				return wrap(err)
			}
		}
	}
	if err := seg.WriteUnsynced(); err != nil {
		return wrap(err)
	}
	if !open {
		return nil // the seal syncs it
	}
	return r.l.syncFile(seg.File, seg.Path)
}
