package history

import (
	"math"
	"time"

	"vigil/internal/kv"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// View is the manifest of a Log at one moment: its segments in order, and the records of the
// batches that were committed by then. It never changes and is safe for concurrent use. It needs no
// closing, and stays readable until the Log is closed.
type View struct {
	segs    []*segment       // the segments before the open one, oldest first
	lasts   []kv.Rev         // the last revision of each, at its end or before
	open    *segment         // the open segment
	growing *growing.Segment // its file
	tail    growing.Memory   // its committed records
	end     uint32           // where its last batch ends
	pend    *growing.Memory  // the current batch; nil unless the view is the writer's

	last    kv.Rev
	applied Applied
	// patient is set for the writer's view: the writer cannot continue without its reads.
	patient bool
}

// newest returns the newest segment before the open one, nil if there is none. It is the only one
// that may be full and not sealed.
func (v *View) newest() *segment {
	if n := len(v.segs); n > 0 {
		return v.segs[n-1]
	}
	return nil
}

// unsealed returns the segment that is full and not sealed, and its file; nil if there is none.
func (v *View) unsealed() (*segment, *growing.Segment) {
	if s := v.newest(); s != nil {
		if g := s.full(); g != nil {
			return s, g
		}
	}
	return nil, nil
}

// readTries is how often the writer retries a read that failed for lack of memory.
const readTries = 50

// retryRead waits and reports whether a read that failed for the try-th time is retried.
func (v *View) retryRead(try int, err error) bool {
	if !v.patient || try >= readTries || vfs.CauseOf(err) != vfs.Exhausted {
		return false
	}
	time.Sleep(retryPause)
	return true
}

// Last returns the main revision of the newest record, 0 if no record was ever written.
func (v *View) Last() int64 { return v.last.Main }

// SameSegment reports whether v and o have the same open segment. A view keeps its open segment in
// memory even after the segment was sealed.
func (v *View) SameSegment(o *View) bool { return v.open == o.open }

// LastRev returns the revision of the newest record. The sub revision is not known, and 0, if the
// record itself was reclaimed.
func (v *View) LastRev() kv.Rev { return v.last }

// Applied returns the position of the newest batch.
func (v *View) Applied() Applied { return v.applied }

// Get appends the encoded record at rev to dst, which may be nil, its checksum checked. ErrNotFound
// if there is none.
func (v *View) Get(rev kv.Rev, dst []byte) (out []byte, err error) {
	out, _, err = v.GetWithin(rev, math.MaxInt, dst)
	return out, err
}

// GetWithin is Get, but a record of more than room bytes is not read. need is its size then, and 0
// otherwise.
func (v *View) GetWithin(rev kv.Rev, room int, dst []byte) (out []byte, need int, err error) {
	s := v.segmentOf(rev)
	w := segfile.Want{Rev: rev, Room: room}
	if s == nil {
		return v.readMemory(&w, dst)
	}
	var a segfile.Access
	a.Begin()
	defer func() {
		if err = a.End(recover(), err); err != nil {
			out = dst
		}
	}()
	return v.readSealed(s, &a, &w, dst)
}

// Peek returns the encoded record at rev if that waits for no disk, and nil otherwise, or if a
// record outside of the open segment takes more than most bytes. The bytes never change.
func (v *View) Peek(rev kv.Rev, most int) (b []byte) {
	s := v.segmentOf(rev)
	if s == nil {
		return v.tail.Data(rev)
	}
	err := segfile.Guard(func(a *segfile.Access) (err error) {
		a.Resident = true
		b, _, err = s.readRecord(a, &segfile.Want{Rev: rev, Room: most}, nil)
		return err
	})
	if err != nil {
		return nil
	}
	return b
}

// segmentOf returns the segment that holds the record at rev if there is one, nil for the open one.
func (v *View) segmentOf(rev kv.Rev) *segment {
	n := len(v.lasts)
	if n == 0 || v.lasts[n-1].Less(rev) {
		return nil
	}
	lo, hi := 0, n-1
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if v.lasts[mid].Less(rev) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return v.segs[lo]
}

// readMemory appends a record of the open segment or the current batch, if there is room. It does
// not compare the checksum: the writer filled the memory, or recovery, which compared it.
func (v *View) readMemory(w *segfile.Want, dst []byte) (out []byte, need int, err error) {
	data := v.tail.Data(w.Rev)
	if data == nil && v.pend != nil {
		data = v.pend.Data(w.Rev)
	}
	return appendWithin(data, w, dst)
}

// readSealed is segment.readRecord, which it retries for the writer.
func (v *View) readSealed(s *segment, a *segfile.Access, w *segfile.Want, dst []byte) (out []byte,
	need int, err error) {
	out, need, err = s.readRecord(a, w, dst)
	for try := 1; err != nil && v.retryRead(try, err); try++ {
		out, need, err = s.readRecord(a, w, dst)
	}
	return out, need, err
}
