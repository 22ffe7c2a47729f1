package wal

import "fmt"

// TruncateBefore gives up the entries below index, which must be at most LastIndex+1; the term of
// the one before index stays known. Segments that are needed no more are kept as spares or removed,
// oldest first. It may run beside Append.
//
// Entries given up may be there again after the log was opened anew. After an error of the file
// system the entries are gone, but files stay where they are until the log is opened again, and
// every later call returns the same error.
func (w *WAL) TruncateBefore(index uint64) error {
	w.truncating.Lock()
	defer w.truncating.Unlock()
	if err := w.dropEntries(index); err != nil {
		return err
	}
	for w.truncating.err == nil {
		seg, shared := w.unlinkOldest()
		if seg == nil {
			break
		}
		recycled, err := w.spares.recycle(seg, shared)
		if err != nil {
			w.truncating.err = fmt.Errorf("wal: taking %s out of the log: %w", seg.path, err)
		}
		if recycled {
			w.short.Store(nil)
			w.stats.recycled.Add(1)
		} else {
			w.stats.removed.Add(1)
		}
	}
	return w.truncating.err
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
	// The segment with the entry before index stays, because it tells that entry's term; and the
	// ones before it may only go when that entry would be there after a crash.
	if durable := w.mu.durable; seg.id < durable.seg || seg.id == durable.seg && s.end() <= durable.off {
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

// unlinkOldest takes the oldest segment out of the list if it is needed no more; shared tells that a
// read still uses it.
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
