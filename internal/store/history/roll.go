package history

import (
	"fmt"

	"vigil/internal/store/history/format"
)

// RollWanted reports whether the open segment wastes so much space that it should be sealed, and
// perhaps rewritten: dead records, and space that was allocated at a higher rate; or because of a
// batch that is larger than a segment, which is in memory until then. With any set, it reports
// whether it has a dead record.
func (l *Log) RollWanted(any bool) bool {
	size := l.sizes.nextSize()
	_, live := l.cat.countBytes()
	v := l.cat.manifest.Load()
	dead := l.cat.deadInOpen()
	waste := dead
	if alloc, err := v.growing.File.Size(); err == nil {
		waste += max(alloc-int64(v.end)-size, 0)
	}
	return int64(v.end) > l.o.SegmentBytes || any && dead > 0 ||
		waste > live/16 && waste > l.o.SegmentBytes/64
}

// Oversized reports whether the open segment has a batch that is larger than a segment. It is for
// the writer.
func (l *Log) Oversized() bool { return int64(l.w.seg.End) > l.o.SegmentBytes }

// WaitNext waits for the next segment, of the size that suits the present rate, and returns true;
// or false if there will be none soon.
func (l *Log) WaitNext() bool {
	l.alloc.resizeFiles()
	for l.seal.awaitTry() && l.alloc.awaitNext() {
		if l.rollable() {
			return true
		}
	}
	return false
}

// rollable reports whether the writer can begin the next segment without waiting.
func (l *Log) rollable() bool { return !l.seal.hasFull() && l.alloc.hasNext() }

// Roll starts a new segment, so that the open one can be sealed and rewritten, unless it is empty.
// It returns false if the next segment is not ready. It is for the writer, between batches.
func (l *Log) Roll() (bool, error) {
	if l.w.seg.Batches == 0 {
		return true, nil
	}
	if l.w.began || !l.rollable() {
		return false, nil
	}
	if err := l.startNext(); err != nil {
		return false, err
	}
	return true, nil
}

// makeRoom makes sure that the open segment has room for the current batch of n bytes.
func (l *Log) makeRoom(n int64) error {
	w := &l.w
	if w.seg.Batches > 0 && l.sizeWith(n) > min(l.o.SegmentBytes, w.seg.Alloc) {
		if err := l.startNext(); err != nil {
			return err
		}
	}
	need := l.sizeWith(n)
	if need > format.MaxSegment {
		return l.end.fail(fmt.Errorf("history: a batch of %d bytes needs a segment of %d bytes, the limit is %d",
			n, need, int64(format.MaxSegment)))
	}
	if need > w.seg.Alloc {
		// A batch that is larger than a segment.
		if err := w.seg.File.Preallocate(need); err != nil {
			return l.end.failUnlessShort(allocationError(w.seg.Path, err))
		}
		w.seg.Alloc = need
	}
	return nil
}

// sizeWith returns the size of the open segment's file once a batch of n bytes was added, a mark
// (see Close) was written and the segment was sealed.
func (l *Log) sizeWith(n int64) int64 {
	w := &l.w
	return w.seg.SealedSize(n, w.pending.Sparse, len(w.pendingMetas))
}

// noteLeft notes how many bytes fit into the open segment.
func (l *Log) noteLeft() { l.left.Store(l.w.seg.Alloc - l.sizeWith(0)) }

// startNext makes the next segment the open one and leaves the old one to the sealer. It waits for
// both. Errors: as Commit.
func (l *Log) startNext() error {
	if err := l.seal.awaitSealed(); err != nil {
		return l.end.failUnlessShort(err)
	}
	next, err := l.alloc.takeNext()
	if err != nil {
		return l.end.failUnlessShort(err)
	}
	w := &l.w
	next.Follow(w.seg)
	w.seg, w.inSeg = next, false
	l.cat.rollSegment(next)
	l.seal.wakeAll()
	l.noteLeft()
	return nil
}
