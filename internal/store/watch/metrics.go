package watch

import "sync/atomic"

// counts are the hub's own counters.
type counts struct {
	progress, compacted, gaps, fellBehind  atomic.Int64
	revoked                                atomic.Int64
	prevReads, catchUpEvents, catchUpBytes atomic.Int64
}

// Metrics is the state of a hub in numbers. Numbers whose names end in Total only grow.
type Metrics struct {
	Streams, Watchers int
	// Behind counts the watchers that are not live, Parked the watchers behind whose client does
	// not read fast enough.
	Behind, Parked int
	// Lag is the largest number of published revisions that are not yet queued for a watcher.
	Lag int64
	// Scans counts the positions in history that are being read.
	Scans int
	// Published and Matched are revisions; RingBytes is the size of the events between them.
	Published, Matched, RingBytes int64
	// QueuedBytes is the number of bytes that all streams hold, QueuedEvents the number of queued
	// events, once for each watcher.
	QueuedBytes, QueuedEvents int64
	// OverflowsTotal counts how often the ring was full, GapsTotal how often all live watchers fell
	// behind for that or another reason.
	OverflowsTotal, GapsTotal int64
	// FellBehindTotal counts the live watchers that fell behind because their stream was full.
	FellBehindTotal int64
	// CompactedTotal counts the watchers that the hub canceled because of a compaction.
	CompactedTotal int64
	// RevokedTotal counts the watchers whose user lost the right to their range.
	RevokedTotal   int64
	ProgressTotal  int64
	PrevReadsTotal int64
	// What catch-up has read from the source.
	CatchUpEventsTotal, CatchUpBytesTotal int64
}

// Metrics returns the state of the hub in numbers. It visits every stream, and the watchers that
// are parked or pending, but not the others.
func (h *Hub) Metrics() Metrics {
	m := Metrics{
		QueuedBytes:        h.queued.Load(),
		GapsTotal:          h.counts.gaps.Load(),
		FellBehindTotal:    h.counts.fellBehind.Load(),
		CompactedTotal:     h.counts.compacted.Load(),
		RevokedTotal:       h.counts.revoked.Load(),
		ProgressTotal:      h.counts.progress.Load(),
		PrevReadsTotal:     h.counts.prevReads.Load(),
		CatchUpEventsTotal: h.counts.catchUpEvents.Load(),
		CatchUpBytesTotal:  h.counts.catchUpBytes.Load(),
	}
	h.mu.Lock()
	m.Streams, m.Watchers, m.Matched = len(h.mu.streams), h.mu.watchers, h.distributed()
	m.Scans = len(h.mu.scans) + len(h.mu.reading)
	lowest := m.Matched + 1
	streams := make([]*Stream, 0, len(h.mu.streams))
	for _, s := range h.mu.streams {
		streams = append(streams, s)
		m.Behind += s.behind
		m.Parked += len(s.parked) + len(s.retrying)
		lowest = s.retrying.lowest(s.parked.lowest(s.pending.lowest(lowest)))
	}
	for _, list := range [][]*group{h.mu.scans, h.mu.reading} {
		for _, g := range list {
			if len(g.members) > 0 {
				lowest = min(lowest, g.pos)
			}
		}
	}
	h.mu.Unlock()
	for _, s := range streams {
		m.QueuedEvents += s.queuedEvents()
	}
	h.ring.mu.Lock()
	m.Published, m.RingBytes, m.OverflowsTotal = h.ring.published.Load(), h.ring.mu.bytes,
		h.ring.mu.overflows
	h.ring.mu.Unlock()
	m.Lag = max(0, m.Published+1-lowest)
	return m
}
