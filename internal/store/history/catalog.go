package history

import (
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/metas"
	"vigil/internal/store/history/segfile"
)

// catalog owns the manifest of a log, and knows how much of each segment is dead. The manifest is
// the newest View. It is replaced as a whole, by three steps: commitBatch and rollSegment of the
// writer, and mergeRun of the reclaimer.
type catalog struct {
	reports segfile.Reports
	logger  *slog.Logger

	manifest atomic.Pointer[View]

	// dead guards the dead records of all segments. mergeRun holds it too, so no segment of the
	// manifest is merged while it is held. The only I/O under it is reading tables.
	dead  sync.Mutex
	metas *metas.Index
}

// replaceManifest makes change on a copy of the manifest and puts that in its place.
func (c *catalog) replaceManifest(change func(v *View)) {
	for {
		old := c.manifest.Load()
		v := *old
		change(&v)
		if c.manifest.CompareAndSwap(old, &v) {
			return
		}
	}
}

// commitBatch lets readers see the batches that were written to the open segment.
func (c *catalog) commitBatch(open *growing.Segment, last kv.Rev, applied Applied) {
	c.replaceManifest(func(v *View) {
		v.tail, v.end = open.Memory, open.End
		v.last, v.applied = last, applied
	})
}

// rollSegment makes next, which is empty, the open segment. The old one is full from now on: it is
// read from memory until it is sealed.
func (c *catalog) rollSegment(next *growing.Segment) {
	v := c.manifest.Load()
	full := v.open
	var before kv.Rev
	if s := v.newest(); s != nil {
		before = s.last
	}
	full.setFull(v.growing, before)
	open := &segment{id: next.Head.ID}
	c.replaceManifest(func(v *View) {
		v.segs = append(slices.Clip(v.segs), full)
		v.lasts = append(slices.Clip(v.lasts), full.last)
		v.open, v.growing, v.tail, v.end = open, next, next.Memory, next.End
	})
}

// segments returns the present segments before the open one, oldest first.
func (c *catalog) segments() []*segment { return c.manifest.Load().segs }

// hasFile reports whether file is the file of one of the present segments.
func (c *catalog) hasFile(file *segfile.File) bool {
	return slices.ContainsFunc(c.segments(), func(s *segment) bool { return s.file() == file })
}

// explainMissing returns the error of a segment whose file could not be opened because it does not
// exist: it is damage if the directory does not have its name.
func (c *catalog) explainMissing(dir directory, file *segfile.File, err error) error {
	names, lerr := dir.fs.List(dir.path)
	if lerr != nil || slices.Contains(names, filepath.Base(file.Path())) || !c.hasFile(file) {
		return err
	}
	return format.Corrupt(file.Path(), 0,
		"the file is gone: its content can be read until the log is closed, and not after that")
}

// countBytes returns the bytes that were written to the segments, without the space allocated
// beyond, and how many of them are not known to be dead.
func (c *catalog) countBytes() (total, live int64) {
	c.dead.Lock()
	defer c.dead.Unlock()
	v := c.manifest.Load()
	open := v.open.dead.Dead.Bytes
	total = int64(v.end)
	live = total - min(open, total)
	for _, s := range v.segs {
		n := s.size.Load()
		total += n
		dead, _ := s.countGarbage()
		if f := s.file(); f != nil {
			foot := f.Footer()
			dead += c.metas.DeadIn(foot.FirstID, foot.LastID)
		}
		live += n - min(dead, n)
	}
	return total, live
}

// deadInOpen returns how many bytes of the open segment are dead records.
func (c *catalog) deadInOpen() int64 {
	c.dead.Lock()
	defer c.dead.Unlock()
	return c.manifest.Load().open.dead.Dead.Bytes
}

// candidates are the segments before the open one, with what a rewrite of each would win.
type candidates struct {
	segs []*segment // oldest first
	list []garbage.Candidate
	dead int64 // the dead bytes of those that can be rewritten
	live int64 // the live bytes of all segments
	// waits is set if a segment that is not sealed yet has garbage.
	waits bool
}

// findCandidates returns the candidates of this moment.
func (c *catalog) findCandidates() candidates {
	c.dead.Lock()
	defer c.dead.Unlock()
	v := c.manifest.Load()
	out := candidates{segs: v.segs}
	// blocked is set if tombstones wait for garbage in older segments, kept if they stay until the
	// next Open.
	blocked, kept := false, false
	for _, s := range v.segs {
		k := garbage.Candidate{Size: s.size.Load()}
		all, tombs := s.countGarbage()
		k.All, k.Dead = all, all
		kept = kept || s.dead.Unsure
		if kept {
			k.All -= tombs
		}
		if blocked || kept {
			k.Dead -= tombs
		}
		blocked = blocked || s.dead.Dead.Records > 0
		if f := s.file(); f != nil {
			k.OK = !s.damaged
			foot := f.Footer()
			metas := c.metas.DeadIn(foot.FirstID, foot.LastID)
			k.All += metas
			k.Dead += metas
		} else {
			out.waits = out.waits || k.All > 0
		}
		k.All, k.Dead = min(k.All, k.Size), min(k.Dead, k.Size)
		if k.OK {
			out.dead += k.All
		}
		out.live += k.Size - k.All
		out.list = append(out.list, k)
	}
	out.live += int64(v.end) - min(v.open.dead.Dead.Bytes, int64(v.end))
	return out
}
