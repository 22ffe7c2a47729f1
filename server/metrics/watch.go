package metrics

import "vigil/internal/store/watch"

func newWatchCollector(hub *watch.Hub) *table[watch.Metrics] {
	return &table[watch.Metrics]{source: hub.Metrics, readings: watchReadings}
}

var watchReadings = []reading[watch.Metrics]{
	gauge("etcd_debugging_mvcc_watch_stream_total", "Open watch streams.",
		func(m watch.Metrics) float64 { return float64(m.Streams) }),
	gauge("etcd_debugging_mvcc_watcher_total", "Watchers.",
		func(m watch.Metrics) float64 { return float64(m.Watchers) }),
	gauge("etcd_debugging_mvcc_slow_watcher_total", "Watchers that are not live.",
		func(m watch.Metrics) float64 { return float64(m.Behind) }),
	gauge("etcd_debugging_mvcc_pending_events_total", "Events waiting to be sent to watchers.",
		func(m watch.Metrics) float64 { return float64(m.QueuedEvents) }),
	gauge("vigil_watch_stalled_watchers", "Watchers waiting for their client to read.",
		func(m watch.Metrics) float64 { return float64(m.Parked) }),
	gauge("vigil_watch_largest_lag_revisions",
		"Published revisions not yet delivered to the watcher with the largest lag.",
		func(m watch.Metrics) float64 { return float64(m.Lag) }),
	gauge("vigil_watch_queued_bytes", "Bytes queued for all watch streams.",
		func(m watch.Metrics) float64 { return float64(m.QueuedBytes) }),
	gauge("vigil_watch_unmatched_bytes", "Bytes published and not yet matched with watchers.",
		func(m watch.Metrics) float64 { return float64(m.RingBytes) }),
	gauge("vigil_watch_unmatched_revisions",
		"Revisions published and not yet matched with watchers.",
		func(m watch.Metrics) float64 { return float64(m.Published - m.Matched) }),
	counter("vigil_watch_fell_behind_total",
		"Live watchers that started to lag because their stream was full.",
		func(m watch.Metrics) float64 { return float64(m.FellBehindTotal) }),
	counter("vigil_watch_compacted_total", "Watchers canceled because compaction overtook them.",
		func(m watch.Metrics) float64 { return float64(m.CompactedTotal) }),
	counter("vigil_watch_revoked_total",
		"Watchers canceled because their user lost the permission to read the range.",
		func(m watch.Metrics) float64 { return float64(m.RevokedTotal) }),
	counter("vigil_watch_catchup_bytes_total", "Bytes of history read for lagging watchers.",
		func(m watch.Metrics) float64 { return float64(m.CatchUpBytesTotal) }),
}
