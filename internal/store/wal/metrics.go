package wal

import (
	"sync/atomic"
	"time"

	"vigil/internal/histogram"
)

// Metrics are counts since the log was opened, and what it holds now.
type Metrics struct {
	// Writes and Syncs count the times of writing groups and of making them durable.
	Writes, Syncs histogram.Snapshot
	// WrittenBytes is the size of the groups written.
	WrittenBytes uint64
	// Segments is the number of files in use, Spares the number of files that are ready for use.
	Segments, Spares int
	// Rolled counts segments begun, Recycled segments released by the log and kept for use again,
	// and Removed segments released and removed.
	Rolled, Recycled, Removed uint64
	// CacheBytes is the size of the entries in memory.
	CacheBytes int64
	// DiskReads counts reads of entries that were not in memory.
	DiskReads uint64
}

const (
	latencyFirst  = 31250 * time.Nanosecond // 32 of which are a millisecond
	latencyBounds = 19
)

type stats struct {
	write, sync                        *histogram.Histogram
	written, rolled, recycled, removed atomic.Uint64
	diskReads                          atomic.Uint64
	// usualSync is about how long the last syncs took in nanoseconds, 0 before the first one.
	usualSync atomic.Int64
}

// noteSync adds a sync to the usual time, of which the last sync is an eighth: a single slow one
// counts for some dozens.
func (s *stats) noteSync(took time.Duration) {
	usual, last := s.usualSync.Load(), max(int64(took), 1)
	if usual == 0 {
		usual = last
	}
	s.usualSync.Store(usual + (last-usual)/8)
}

// UsualSync returns about how long Append takes to make entries durable, 0 if that is not known.
func (w *WAL) UsualSync() time.Duration { return time.Duration(w.stats.usualSync.Load()) }

func (s *stats) init() {
	s.write, s.sync = histogram.New(latencyFirst, latencyBounds),
		histogram.New(latencyFirst, latencyBounds)
}

// Metrics returns the figures of the log.
func (w *WAL) Metrics() Metrics {
	m := Metrics{
		Writes: w.stats.write.Read(), Syncs: w.stats.sync.Read(),
		WrittenBytes: w.stats.written.Load(),
		Rolled:       w.stats.rolled.Load(), Recycled: w.stats.recycled.Load(),
		Removed:   w.stats.removed.Load(),
		DiskReads: w.stats.diskReads.Load(), Spares: w.spares.count(),
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	m.Segments, m.CacheBytes = len(w.mu.segs), w.mu.cacheBytes
	return m
}
