package history

// RollWanted says whether the open segment wastes so much that it should be sealed, and rewritten
// perhaps: what is dead in it, and what was allocated for it in busier times. With any set, it says
// whether something in it is dead.
func (l *Log) RollWanted(any bool) bool {
	size := l.cat.segmentSize()
	_, live := l.cat.size()
	l.cat.dead.Lock()
	v := l.cat.view.Load()
	dead := v.open.seg.dead.count.bytes
	l.cat.dead.Unlock()
	waste := dead
	if alloc, err := v.open.file.Size(); err == nil {
		waste += max(alloc-int64(v.end)-size, 0)
	}
	return any && dead > 0 || waste > live/16 && waste > l.o.SegmentBytes/64
}

// WaitNext returns when there is a segment at hand to go on in, no larger than it should be by now,
// and true, or when there will be none soon.
func (l *Log) WaitNext() bool {
	l.alloc.fit()
	a := l.alloc
	l.mu.Lock()
	defer l.mu.Unlock()
	for (l.seal.pending != nil && l.seal.err == nil || a.next == nil && a.err == nil) && l.aliveLocked() == nil {
		l.mu.changed.Wait()
	}
	return l.seal.pending == nil && a.next != nil && l.aliveLocked() == nil
}

// Roll goes on in a new segment, so that the open one can be sealed and rewritten, unless it is empty.
// It returns false if no new one is at hand. It is for the writer, between batches.
func (l *Log) Roll() (bool, error) {
	w := &l.w
	if w.seg.batches == 0 {
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
