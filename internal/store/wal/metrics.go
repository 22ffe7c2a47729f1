package wal

import (
	"sync/atomic"
	"time"
)

// Metrics are counts since the log was opened, and what it holds now.
type Metrics struct {
	// Writes and Syncs say how long writing groups and making them durable took.
	Writes, Syncs Latency
	// WrittenBytes is the size of the groups written.
	WrittenBytes uint64
	// Segments is the number of files in use, Spares of those waiting to be.
	Segments, Spares int
	// Rolled counts segments begun, Recycled those taken out of the log to be used again and
	// Removed those that went.
	Rolled, Recycled, Removed uint64
	// CacheBytes is the size of the entries in memory.
	CacheBytes int64
	// DiskReads counts reads of entries that were not in memory.
	DiskReads uint64
}

// LatencyBounds returns the upper bounds of the buckets of a Latency but the last, which has none.
func LatencyBounds() []time.Duration {
	b := make([]time.Duration, latencyBuckets-1)
	for i := range b {
		b[i] = latencyFirst << i
	}
	return b
}

const (
	latencyBuckets = 20
	latencyFirst   = 31250 * time.Nanosecond // 32 of which are a millisecond
)

// Latency is a histogram of durations.
type Latency struct {
	Count   uint64
	Sum     time.Duration
	Buckets [latencyBuckets]uint64 // not cumulative
}

type latency struct {
	sum     atomic.Int64
	buckets [latencyBuckets]atomic.Uint64
}

func (l *latency) observe(d time.Duration) {
	i := 0
	for i < latencyBuckets-1 && d > latencyFirst<<i {
		i++
	}
	l.buckets[i].Add(1)
	l.sum.Add(int64(d))
}

func (l *latency) read() Latency {
	out := Latency{Sum: time.Duration(l.sum.Load())}
	for i := range out.Buckets {
		out.Buckets[i] = l.buckets[i].Load()
		out.Count += out.Buckets[i]
	}
	return out
}

type stats struct {
	write, sync                        latency
	written, rolled, recycled, removed atomic.Uint64
	diskReads                          atomic.Uint64
}

// Metrics returns the figures of the log.
func (w *WAL) Metrics() Metrics {
	m := Metrics{
		Writes: w.stats.write.read(), Syncs: w.stats.sync.read(), WrittenBytes: w.stats.written.Load(),
		Rolled: w.stats.rolled.Load(), Recycled: w.stats.recycled.Load(), Removed: w.stats.removed.Load(),
		DiskReads: w.stats.diskReads.Load(), Spares: w.spares.count(),
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	m.Segments, m.CacheBytes = len(w.mu.segs), w.mu.cacheBytes
	return m
}
