package metrics

import "github.com/prometheus/client_golang/prometheus"

// unsupported returns etcd's metrics of things that this program does not have. They are exported
// as 0, so that dashboards and alerts that use them work.
func unsupported() (out []prometheus.Collector) {
	const none = "Always 0: "
	for name, why := range map[string]string{
		"etcd_mvcc_db_open_read_transactions": "reads hold no transaction of a " +
			"database open.",
		"etcd_grpc_proxy_cache_hits_total":          "there is no proxy.",
		"etcd_grpc_proxy_cache_keys_total":          "there is no proxy.",
		"etcd_grpc_proxy_cache_misses_total":        "there is no proxy.",
		"etcd_grpc_proxy_watchers_coalescing_total": "there is no proxy.",
		"etcd_debugging_store_watchers":             "there is no v2 store.",
		"etcd_disk_defrag_inflight": "there is no defragmentation; space is " +
			"reclaimed continuously.",
	} {
		out = append(out, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: none + why}))
	}
	for name, why := range map[string]string{
		"etcd_grpc_proxy_events_coalescing_total":   "there is no proxy.",
		"etcd_debugging_store_expires_total":        "there is no v2 store.",
		"etcd_debugging_store_watch_requests_total": "there is no v2 store.",
	} {
		out = append(out, prometheus.NewCounter(prometheus.CounterOpts{Name: name,
			Help: none + why}))
	}
	for _, h := range []struct {
		name, why string
		first     float64
		bounds    int
	}{
		{"etcd_debugging_disk_backend_commit_rebalance_duration_seconds",
			"the history is not a tree.", .001, 14},
		{"etcd_debugging_disk_backend_commit_spill_duration_seconds",
			"the history is not a tree.", .001, 14},
		{"etcd_debugging_snap_save_marshalling_duration_seconds",
			"the raft log is truncated without a snapshot file.", .001, 14},
		{"etcd_debugging_snap_save_total_duration_seconds",
			"the raft log is truncated without a snapshot file.", .001, 14},
		{"etcd_disk_backend_defrag_duration_seconds",
			"there is no defragmentation; space is reclaimed continuously.", .1, 13},
		{"etcd_snap_db_fsync_duration_seconds", "see vigil_snapshot_*.", .001, 14},
		{"etcd_snap_db_save_total_duration_seconds", "see vigil_snapshot_*.", .1, 10},
		{"etcd_snap_fsync_duration_seconds",
			"the raft log is truncated without a snapshot file.", .001, 14},
	} {
		out = append(out, prometheus.NewHistogram(prometheus.HistogramOpts{Name: h.name,
			Help:    none + h.why,
			Buckets: prometheus.ExponentialBuckets(h.first, 2, h.bounds)}))
	}
	return out
}
