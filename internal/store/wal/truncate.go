package wal

import (
	"fmt"

	"vigil/internal/kv"
)

// TruncateBefore releases the entries below index, which must be at most LastIndex+1. The term of
// the entry before index stays known. Segments that are not needed any more become spares or are
// removed, oldest first. It may run concurrently with Append.
//
// Released entries may be back after a restart. A segment that cannot be removed yet stays for the
// next call. TruncateBefore fails if the index is wrong, if the log is closed, or if a change or a
// sync of the names in the directory failed: then the names are unknown, the files stay where they
// are until the log is opened again, and every later call, also of Append, returns an error.
func (w *WAL) TruncateBefore(index uint64) error {
	w.truncating.Lock()
	defer w.truncating.Unlock()
	if err := w.dropEntries(index); err != nil {
		return err
	}
	for w.truncating.err == nil {
		more, err := w.releaseOldest()
		if err != nil && !w.truncating.delayed && w.truncating.err == nil {
			w.o.Logger.Warn("cannot take a segment out of the raft log yet", "error", err.Error())
		}
		w.truncating.delayed = err != nil
		if !more || err != nil {
			break
		}
	}
	return w.truncating.err
}

// releaseOldest makes the oldest segment a spare or removes it, if it is not needed any more. It
// returns false if there is no such segment. The removal of a name is durable before the next name
// is removed, so that a crash leaves no hole. A failed sync of the directory ends truncation for
// good.
func (w *WAL) releaseOldest() (bool, error) {
	if err := w.spares.syncNames(); err != nil {
		err = fmt.Errorf("wal: taking segments out of the log: %w", err)
		if !kv.Shortage(err) {
			w.truncating.err = err
		}
		return false, err
	}
	if w.spares.count() > 0 {
		w.short.Store(nil)
	}
	seg, shared := w.unlinkOldest()
	if seg == nil {
		return false, nil
	}
	// Without space for another one any size will do.
	recycled, err := w.spares.recycle(seg,
		!shared && (seg.size == w.spares.size.Load() || w.short.Load() != nil))
	if err != nil {
		w.relinkOldest(seg)
		err = fmt.Errorf("wal: taking %s out of the log: %w", seg.path, err)
		if w.spares.failure() != nil {
			w.truncating.err = err
		}
		return false, err
	}
	if recycled {
		w.stats.recycled.Add(1)
	} else {
		w.stats.removed.Add(1)
	}
	return true, nil
}

// dropEntries moves the start of the log to before index.
func (w *WAL) dropEntries(index uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed {
		return ErrClosed
	}
	if last := w.last(); index > last+1 {
		return fmt.Errorf("wal: truncate before %d of a log up to %d", index, last)
	}
	if index <= w.mu.start.Index+1 {
		return nil
	}
	s := *w.slot(index - 1)
	seg := w.segment(&s)
	// The segment with the entry before index stays, because it has that entry's term. The segments
	// before it may go only if a crash would keep that entry.
	if durable := w.mu.durable; seg.id < durable.seg || seg.id == durable.seg &&
		s.end() <= durable.off {
		w.mu.oldest = max(w.mu.oldest, seg.id)
	}
	k := int(index - 1 - w.mu.start.Index)
	for i := range k {
		w.mu.bytes -= int64(w.mu.slots.at(i).size)
	}
	uncached := w.mu.slots.len() - w.mu.cache.len()
	for i := range k - uncached {
		w.mu.cacheBytes -= cacheCost(*w.mu.cache.at(i))
	}
	w.mu.cache.popFront(max(k-uncached, 0))
	w.mu.slots.popFront(k)
	w.mu.start = Start{index - 1, s.term}
	return nil
}

// unlinkOldest removes the oldest segment from the list if it is not needed any more. shared is set
// if a read still uses it.
func (w *WAL) unlinkOldest() (seg *segment, shared bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.segs) == 0 || w.mu.segs[0].id >= w.mu.oldest {
		return nil, false
	}
	seg = w.mu.segs[0]
	w.mu.segs[0] = nil
	w.mu.segs = w.mu.segs[1:]
	return seg, seg.refs.Load() > 1
}

// relinkOldest puts back the segment that unlinkOldest removed.
func (w *WAL) relinkOldest(seg *segment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.segs = append([]*segment{seg}, w.mu.segs...)
}
