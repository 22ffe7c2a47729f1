package history

import (
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"vigil/internal/store/history/format"
	"vigil/internal/store/history/garbage"
	"vigil/internal/store/history/metas"
	"vigil/internal/store/history/segfile"
)

// catalog knows the segments, how much of them is dead, and how fast the log grows.
type catalog struct {
	*core
	rec *reclaimState // woken when records died

	view atomic.Pointer[View] // what readers see; stored by the writer
	// appended counts the bytes of batches, rate is the recent number of them per second.
	appended, rate atomic.Int64

	// segs are the present segments before the open one; replaced, never changed. The writer and the Views
	// may still refer to merged segments. Guarded by core.mu.
	segs []*segment

	// dead guards the deadSets of all segments. It comes before core.mu, and is never held over I/O but
	// that of reading a table.
	dead  sync.Mutex
	metas *metas.Index
}

// segments returns the present segments before the open one, oldest first.
func (c *catalog) segments() []*segment {
	segs, _ := c.state()
	return segs
}

// state returns these and the view of that moment. Its open segment is the last of them while the writer has begun another one and
// written nothing there, and otherwise follows them: none lies between.
func (c *catalog) state() ([]*segment, *View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.segs, c.view.Load()
}

// size returns the bytes that were written to the segments (allocated ones beyond that not counted),
// and how many of them are not known to be dead.
func (c *catalog) size() (total, live int64) {
	segs, v := c.state()
	c.dead.Lock()
	defer c.dead.Unlock()
	open := v.open.seg.dead.Dead.Bytes
	total = int64(v.end)
	live = total - min(open, total)
	for _, s := range segs {
		if s == v.open.seg {
			continue // the sealer has received it since the view was taken
		}
		n := s.size.Load()
		total += n
		dead, _ := s.garbage()
		if src := s.src.Load(); src.file != nil {
			foot := src.file.Footer()
			dead += c.metas.DeadIn(foot.FirstID, foot.LastID)
		}
		live += n - min(dead, n)
	}
	return total, live
}

// mergedSize returns how large a merged segment should be: a sixteenth of what is live, at most
// Options.SegmentBytes.
func (c *catalog) mergedSize() int64 {
	most := c.o.SegmentBytes
	least := min(most, smallSegment)
	if c.view.Load() == nil {
		return least
	}
	_, live := c.size()
	return min(max(least, live/16), most)
}

// segmentSize returns how large the next segment should be: that, or enough for some time of writing.
func (c *catalog) segmentSize() int64 {
	return min(max(c.mergedSize(), min(c.rate.Load()*int64(segmentTime/time.Second), fastSegment)), c.o.SegmentBytes)
}

// uses says whether file is that of a segment as they are now.
func (c *catalog) uses(file *segfile.File) bool {
	return slices.ContainsFunc(c.segments(), func(s *segment) bool { return s.src.Load().file == file })
}

// missing returns the error of a segment whose file could not be opened because it does not exist: it
// is damage if the directory does not have its name.
func (c *catalog) missing(file *segfile.File, err error) error {
	names, lerr := c.o.FS.List(c.o.Dir)
	if lerr != nil || slices.Contains(names, filepath.Base(file.Path())) || !c.uses(file) {
		return err
	}
	return format.Corrupt(file.Path(), 0, "the file is gone: what is in it can be read until the log is closed, and not after that")
}

// candidates returns the segments before the open one, oldest first, as run and as candidates cs, the dead bytes of those
// that can be rewritten, and the live bytes of all. waits is set if a segment that is not sealed yet has garbage.
func (c *catalog) candidates() (run []*segment, cs []garbage.Candidate, dead, live int64, waits bool) {
	segs, v := c.state()
	c.dead.Lock()
	defer c.dead.Unlock()
	// blocked is set if tombstones wait for garbage in older segments, kept if they stay until the next Open.
	blocked, kept := false, false
	for _, s := range segs {
		if s == v.open.seg {
			waits = waits || s.dead.Dead.Records > 0
			continue // the sealer has received it since the view was taken
		}
		k := garbage.Candidate{Size: s.size.Load()}
		all, tombs := s.garbage()
		k.All, k.Dead = all, all
		kept = kept || s.dead.Unsure
		if kept {
			k.All -= tombs
		}
		if blocked || kept {
			k.Dead -= tombs
		}
		blocked = blocked || s.dead.Dead.Records > 0
		if src := s.src.Load(); src.file != nil {
			k.OK = !s.damaged
			foot := src.file.Footer()
			metas := c.metas.DeadIn(foot.FirstID, foot.LastID)
			k.All += metas
			k.Dead += metas
		} else {
			waits = waits || k.All > 0
		}
		k.All, k.Dead = min(k.All, k.Size), min(k.Dead, k.Size)
		if k.OK {
			dead += k.All
		}
		live += k.Size - k.All
		run, cs = append(run, s), append(cs, k)
	}
	live += int64(v.end) - min(v.open.seg.dead.Dead.Bytes, int64(v.end))
	return run, cs, dead, live, waits
}
