package history

import (
	"fmt"
	"slices"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
)

// RollWanted reports whether the open segment wastes so much space that it should be sealed, and perhaps rewritten:
// dead records, and space that was allocated at a higher rate; or because of a batch that is larger than a segment, which
// is in memory until then. With any set, it reports whether it has a dead record.
func (l *Log) RollWanted(any bool) bool {
	size := l.cat.segmentSize()
	_, live := l.cat.size()
	l.cat.dead.Lock()
	v := l.cat.view.Load()
	dead := v.open.seg.dead.Dead.Bytes
	l.cat.dead.Unlock()
	waste := dead
	if alloc, err := v.open.File.Size(); err == nil {
		waste += max(alloc-int64(v.end)-size, 0)
	}
	return int64(v.end) > l.o.SegmentBytes || any && dead > 0 || waste > live/16 && waste > l.o.SegmentBytes/64
}

// Oversized reports whether the open segment has a batch that is larger than a segment. It is for the writer.
func (l *Log) Oversized() bool { return int64(l.w.seg.End) > l.o.SegmentBytes }

// WaitNext waits for the next segment, of the size that suits the present rate, and returns true; or false if there will
// be none soon.
func (l *Log) WaitNext() bool {
	l.alloc.resize()
	a := l.alloc
	l.mu.Lock()
	defer l.mu.Unlock()
	for (l.seal.pending != nil && l.seal.err == nil || a.next == nil && a.err == nil) && l.aliveLocked() == nil {
		l.mu.changed.Wait()
	}
	return l.seal.pending == nil && a.next != nil && l.aliveLocked() == nil
}

// Roll starts a new segment, so that the open one can be sealed and rewritten, unless it is empty. It returns false if
// the next segment is not ready. It is for the writer, between batches.
func (l *Log) Roll() (bool, error) {
	w := &l.w
	if w.seg.Batches == 0 {
		return true, nil
	}
	if w.began {
		return false, nil
	}
	l.mu.Lock()
	ready := l.seal.pending == nil && l.alloc.next != nil
	l.mu.Unlock()
	if !ready {
		return false, nil
	}
	if err := l.roll(); err != nil {
		return false, err
	}
	l.publish()
	return true, nil
}

// place makes sure that the open segment has room for the current batch of n bytes.
func (l *Log) place(n int64) error {
	w := &l.w
	if w.seg.Batches > 0 && l.need(n) > min(l.o.SegmentBytes, w.seg.Alloc) {
		if err := l.roll(); err != nil {
			return err
		}
	}
	need := l.need(n)
	if need > format.MaxSegment {
		return l.fail(fmt.Errorf("history: a batch of %d bytes is too large", n))
	}
	if need > w.seg.Alloc {
		// A batch that is larger than a segment.
		if err := w.seg.File.Preallocate(need); err != nil {
			if err = l.allocationFailed(w.seg.Path, err); kv.Shortage(err) {
				return err
			}
			return l.fail(err)
		}
		w.seg.Alloc = need
	}
	return nil
}

// need returns the size of the open segment's file once a batch of n bytes was added, a mark (see
// Close) was written and the segment was sealed.
func (l *Log) need(n int64) int64 {
	w := &l.w
	return w.seg.SealedSize(n, w.pend.Sparse, len(w.pendLoc))
}

// roll makes the next segment the open one and leaves the old one to the sealer. Its errors are those of
// Commit.
func (l *Log) roll() error {
	w, a, s := &l.w, l.alloc, l.seal
	l.mu.Lock()
	defer l.mu.Unlock()
	for s.pending != nil && !kv.Shortage(s.err) && s.tries < tries && l.mu.err == nil && !l.mu.closed {
		l.mu.changed.Wait()
	}
	if s.pending != nil && s.err != nil {
		return l.neededLocked(s.err)
	}
	for try := 0; a.next == nil && try < tries && (try == 0 || !kv.Shortage(a.err)); try++ {
		a.wanted, a.err, a.waited = true, nil, true
		l.mu.changed.Broadcast()
		for a.next == nil && a.err == nil && l.mu.err == nil && !l.mu.closed {
			l.mu.changed.Wait()
		}
	}
	for a.fitting && l.mu.err == nil && !l.mu.closed {
		l.mu.changed.Wait()
	}
	if err := l.aliveLocked(); err != nil {
		return err
	}
	if a.next == nil {
		return l.neededLocked(a.err)
	}
	old := w.seg
	l.retire(old)
	w.seg = a.next
	w.seg.Follow(old.Segment)
	w.inSeg = false
	a.next, a.waited = nil, false
	s.pending = old
	a.wanted = true
	l.left.Store(w.seg.Alloc - l.need(0))
	a.noteLocked()
	l.mu.changed.Broadcast()
	return nil
}

// retire appends a full segment to those before the open one. It is still read from memory.
func (l *Log) retire(s *openSegment) {
	w := &l.w
	last := s.Last
	if n := len(w.lasts); last == (kv.Rev{}) && n > 0 {
		last = w.lasts[n-1]
	}
	s.seg.size.Store(int64(s.End))
	s.seg.first, s.seg.last = s.First, last
	s.seg.src.Store(&source{mem: &s.Memory})
	l.adopt(s.seg)
}

// neededLocked returns the error of a step that the log needs: a shortage, which is retried, or the error that ends the
// log.
func (l *Log) neededLocked(err error) error {
	if dead := l.aliveLocked(); dead != nil {
		return dead
	}
	if kv.Shortage(err) {
		return err
	}
	return l.failLocked(err)
}

// adopt appends s to the segments before the open one. The writer also takes over the segments that were merged since
// the last call.
func (l *Log) adopt(s *segment) {
	l.cat.segs = append(slices.Clip(l.cat.segs), s)
	lasts := make([]kv.Rev, len(l.cat.segs))
	for i, s := range l.cat.segs {
		lasts[i] = s.last
	}
	l.w.segs, l.w.lasts = l.cat.segs, lasts
}
