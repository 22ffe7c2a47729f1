package history

import (
	"math"
	"time"
	"vigil/internal/kv"
	"vigil/internal/store/history/growing"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

// View is an immutable state of a Log: the records of the batches that were committed when it was taken. It is safe for
// concurrent use and needs no closing; it stays readable until the Log is closed.
type View struct {
	segs  []*segment      // the segments before the open one, oldest first
	lasts []kv.Rev        // the last revision of each, at its end or before
	tail  growing.Memory  // the open segment
	pend  *growing.Memory // the current batch; nil unless the view is the writer's

	last    kv.Rev
	applied Applied
	open    *openSegment // whose bytes tail is
	end     uint32       // where the last batch ends in it
	// patient is set for the writer's view: the writer cannot continue without its reads.
	patient bool
}

// readTries is how often the writer retries a read that failed for lack of memory.
const readTries = 50

// again waits and reports whether a read that failed for the try-th time is retried.
func (v *View) again(try int, err error) bool {
	if !v.patient || try >= readTries || vfs.CauseOf(err) != vfs.Exhausted {
		return false
	}
	time.Sleep(retryPause)
	return true
}

// Last returns the main revision of the newest record, 0 if no record was ever written.
func (v *View) Last() int64 { return v.last.Main }

// SameSegment reports whether v and o have the same open segment. A view keeps that segment in memory, also when it is sealed.
func (v *View) SameSegment(o *View) bool { return v.open == o.open }

// LastRev returns the revision of the newest record. The sub revision is not known, and 0, if the record itself was reclaimed.
func (v *View) LastRev() kv.Rev { return v.last }

// Applied returns the position of the newest batch.
func (v *View) Applied() Applied { return v.applied }

// Get appends the encoded record at rev to dst, which may be nil, its checksum checked. ErrNotFound if there is none.
func (v *View) Get(rev kv.Rev, dst []byte) (out []byte, err error) {
	out, _, err = v.GetWithin(rev, math.MaxInt, dst)
	return out, err
}

// GetWithin is Get, but a record of more than room bytes is not read. need is its size then, and 0 otherwise.
func (v *View) GetWithin(rev kv.Rev, room int, dst []byte) (out []byte, need int, err error) {
	s := v.segmentOf(rev)
	w := segfile.Want{Rev: rev, Room: room}
	if s == nil {
		return v.getMemory(&w, dst)
	}
	var a segfile.Access
	a.Begin()
	defer func() {
		if err = a.End(recover(), err); err != nil {
			out = dst
		}
	}()
	return v.getSealed(s, &a, &w, dst)
}

// Peek returns the encoded record at rev if that waits for no disk, and nil otherwise, or if a record outside of the open segment
// takes more than most bytes. The bytes never change.
func (v *View) Peek(rev kv.Rev, most int) (b []byte) {
	s := v.segmentOf(rev)
	if s == nil {
		return v.tail.Data(rev)
	}
	err := segfile.Guard(func(a *segfile.Access) (err error) {
		a.Resident = true
		b, _, err = s.get(a, &segfile.Want{Rev: rev, Room: most}, nil)
		return err
	})
	if err != nil {
		return nil
	}
	return b
}

// GetSome appends the records at revs, in the order given, to out. It stops before a record with which out.Buf would have more than
// size bytes; need is the size of that record, 0 if there is none. On an error out holds the records before the one that failed.
// Revisions that are near each other cost less.
func (v *View) GetSome(revs []kv.Rev, size int, out *kv.Records) (need int, err error) {
	if len(revs) == 1 {
		b, need, err := v.GetWithin(revs[0], size-len(out.Buf), out.Buf)
		if err == nil && need == 0 {
			out.Buf = b
			out.Close()
		}
		return need, err
	}
	m := many{v: v, most: size, dst: out.Buf, ends: &out.Ends}
	need, err = m.get(revs)
	out.Buf = m.dst
	return need, err
}

// GetFramed appends the records at revs, in the order given, to dst, each as an element of the field with a tag of a protobuf message,
// without growing dst. It returns how many those are: it stops before a record for which there is no room. On an error out holds the
// records before the one that failed.
func (v *View) GetFramed(revs []kv.Rev, tag byte, dst []byte) (out []byte, n int, err error) {
	m := many{v: v, tag: tag, most: cap(dst), dst: dst}
	_, err = m.get(revs)
	return m.dst, m.n, err
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

// getMemory appends a record of the open segment or the current batch, unless there is no room. Memory needs no checksum: it was
// filled by the writer, or by recovery, which checked it.
func (v *View) getMemory(w *segfile.Want, dst []byte) (out []byte, need int, err error) {
	data := v.tail.Data(w.Rev)
	if data == nil && v.pend != nil {
		data = v.pend.Data(w.Rev)
	}
	return appendWithin(data, w, dst)
}

// appendWithin appends a record in memory, nil if there is none.
func appendWithin(data []byte, w *segfile.Want, dst []byte) (out []byte, need int, err error) {
	if data == nil {
		return dst, 0, ErrNotFound
	}
	out, need = w.AppendWithin(dst, data)
	return out, need, nil
}

// getSealed is get with the patience of the view.
func (v *View) getSealed(s *segment, a *segfile.Access, w *segfile.Want, dst []byte) (out []byte, need int, err error) {
	out, need, err = s.get(a, w, dst)
	for try := 1; err != nil && v.again(try, err); try++ {
		out, need, err = s.get(a, w, dst)
	}
	return out, need, err
}

// get appends a record to dst, unless there is no room.
func (s *segment) get(a *segfile.Access, w *segfile.Want, dst []byte) (out []byte, need int, err error) {
	src, err := s.acquire(a)
	if err != nil {
		return dst, 0, err
	}
	if src.mem != nil {
		return appendWithin(src.mem.Data(w.Rev), w, dst)
	}
	if a.Resident {
		if i, ok := src.file.Locate(w.Rev, w.Room); ok {
			return src.file.Get(i, w, dst)
		}
		return dst, 0, nil
	}
	switch i, err := src.file.Find(w.Rev); {
	case err != nil:
		return dst, 0, err
	case i < 0:
		return dst, 0, ErrNotFound
	default:
		return src.file.Get(i, w, dst)
	}
}
