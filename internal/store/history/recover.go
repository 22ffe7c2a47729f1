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

// Open opens an existing log and recovers from a crash: it cuts an incomplete batch at the end. Any
// other difference from the bytes that were written is an error that wraps kv.ErrCorrupt. It fails
// with fs.ErrNotExist if there is no log. When Open returns, all of the log is durable.
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
	// Recovery changes files, and somebody may have removed the lock of the data directory, which
	// is a file.
	if err := pinned.LockDir(); err != nil {
		pinned.Release()
		return nil, fmt.Errorf("history: %w", err)
	}
	l := newLog(o, pinned)
	r := recovery{l: l, member: format.Identity{ClusterID: o.ClusterID, MemberID: o.MemberID}}
	if err := r.recover(); err != nil {
		for _, s := range r.segs {
			if f := s.file(); f != nil {
				f.Release()
			}
		}
		for _, g := range r.logs {
			_ = g.File.Close()
		}
		pinned.Release()
		return nil, err
	}
	l.openManifest(r.segs, r.logs[0], r.chain)
	l.start(r.chain.Applied)
	return l, nil
}

// recovery is the state of an Open.
type recovery struct {
	l      *Log
	member format.Identity
	segs   []*segment         // sealed
	logs   []*growing.Segment // open files that are not sealed
	chain  format.Chain
}

// recover reads all files and makes what it finds durable. After it, logs has one element, the open
// segment.
func (r *recovery) recover() error {
	l := r.l
	files, err := segfile.List(l.o.FS, l.o.Dir)
	if err != nil {
		return err
	}
	for _, name := range files.Unknown {
		l.o.Logger.Warn("a file in the history directory does not belong there", "file",
			l.dir.join(name))
	}
	r.chain.NextID = 1
	for _, f := range files.Sealed {
		if err := r.addSealed(f); err != nil {
			return err
		}
	}
	if err := r.addLogs(files.Logs); err != nil {
		return err
	}
	// A killed process may not have synced the name of a merged segment. The segments that it
	// replaces are removed after the sync.
	if err := l.dir.syncNames(); err != nil {
		return err
	}
	for _, name := range append(files.Temp, files.Obsolete...) {
		if err := l.o.FS.Remove(l.dir.join(name)); err != nil {
			return fmt.Errorf("history: remove a leftover: %w", err)
		}
	}
	l.setMember(r.member)
	if len(r.logs) > 0 {
		return nil
	}
	// A crash between the seal of a segment and the first batch of the next one leaves the next
	// one. If that was removed too, a new one serves as well.
	open, err := l.alloc.prepareSegment(r.chain.NextID)
	if err == nil {
		err = l.alloc.nameSegment(open)
	}
	if err != nil {
		return err
	}
	open.FollowChain(&r.chain)
	r.logs = append(r.logs, open)
	return nil
}

// addSealed opens the next sealed segment.
func (r *recovery) addSealed(f segfile.Name) error {
	path := r.l.dir.join(f.Name)
	if f.First != r.chain.NextID {
		return format.Corrupt(path, 0,
			"the segment that begins with %016x is missing, or this one is there twice",
			r.chain.NextID)
	}
	in, err := r.l.o.FS.Open(path)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	file, h, err := segfile.Open(in, path)
	if err != nil {
		return err
	}
	foot := file.Footer()
	last := foot.Last
	if foot.Records == 0 {
		last = r.chain.Last
	}
	// It is added at once, so that it is released if a later step fails.
	r.segs = append(r.segs, newSealed(file, last))
	if err := r.member.Check(&h, path); err != nil {
		return err
	}
	if err := r.chain.CheckSealed(foot, path); err != nil {
		return err
	}
	r.chain.AdvanceSealed(foot)
	return file.EachMeta(func(_ uint32, m Meta) { r.addMeta(f.Last, m) })
}

// addMeta adds a meta record of segment id.
func (r *recovery) addMeta(id uint64, m Meta) {
	r.l.w.metas.Apply(m)
	r.l.w.metas.Commit()
	r.l.cat.metas.Note(id, &m)
}

// addLogs opens the segments that are not sealed, and leaves the open one in logs, if there is one.
// That is the last one with a batch: the segments before it are whole and get sealed, the segments
// after it are removed.
func (r *recovery) addLogs(ids []uint64) error {
	l := r.l
	if len(ids) == 0 && len(r.segs) == 0 {
		return format.Corrupt(l.o.Dir, 0, "there is no segment")
	}
	for i, id := range ids {
		if id != r.chain.NextID+uint64(i) {
			return format.Corrupt(l.dir.join(format.SegmentName(id)), 0,
				"the segment %016x is missing, or this one is there twice",
				r.chain.NextID+uint64(i))
		}
		seg, err := r.openLog(id)
		if err != nil {
			return err
		}
		r.logs = append(r.logs, seg)
	}
	used := 0
	for _, seg := range r.logs {
		if err := seg.Load(&r.chain, func(m Meta) { r.addMeta(seg.Head.ID, m) }); err != nil {
			return err
		}
		if seg.Batches == 0 {
			break
		}
		used++
	}
	if used == 0 && len(r.segs) == 0 {
		return format.Corrupt(r.logs[0].Path, format.HeaderSize, "there is no batch")
	}
	if used == 0 && len(r.logs) > 0 {
		used = 1 // nothing was committed since the last seal: the empty one is the open one
	}
	for _, seg := range r.logs[max(used-1, 0):] {
		if err := seg.ExamineTail(); err != nil {
			return err
		}
	}
	for len(r.logs) > used {
		last := r.logs[len(r.logs)-1]
		if last.End > format.HeaderSize {
			l.o.Logger.Warn("dropped a history segment whose predecessor lost its end in a crash",
				"file", last.Path)
		}
		_ = last.File.Close()
		r.logs = r.logs[:len(r.logs)-1]
		if err := l.o.FS.Remove(last.Path); err != nil {
			return fmt.Errorf("history: %w", err)
		}
		// One after another, so that a crash leaves no hole.
		if err := l.dir.syncNames(); err != nil {
			return err
		}
	}
	for len(r.logs) > 1 {
		seg := r.logs[0]
		if err := r.makeDurable(seg, false); err != nil {
			return err
		}
		if err := r.sealLog(seg); err != nil {
			return err
		}
		r.logs = r.logs[1:]
	}
	if len(r.logs) == 0 {
		return nil
	}
	return r.makeDurable(r.logs[0], true)
}

// sealLog seals a segment that is whole.
func (r *recovery) sealLog(g *growing.Segment) error {
	var before kv.Rev
	if n := len(r.segs); n > 0 {
		before = r.segs[n-1].last
	}
	s := &segment{id: g.Head.ID}
	s.setFull(g, before)
	r.segs = append(r.segs, s)
	return r.l.seal.seal(s, g)
}

func (r *recovery) openLog(id uint64) (*growing.Segment, error) {
	path := r.l.dir.join(format.SegmentName(id))
	file, err := r.l.o.FS.OpenWrite(path)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return growing.Open(file, path, id, &r.member)
}

// makeDurable writes a segment so that a sync makes it durable as it was read. It syncs the open
// one, which also gets the space of a small segment.
func (r *recovery) makeDurable(seg *growing.Segment, open bool) error {
	wrap := func(err error) error { return fmt.Errorf("history: recover %s: %w", seg.Path, err) }
	if open {
		if n := seg.Torn(); n > 0 {
			r.l.o.Logger.Warn("cut a torn history batch", "file", seg.Path, "offset",
				seg.End, "bytes", n)
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
	return r.l.dir.syncFile(seg.File, seg.Path)
}
