package server

import (
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"vigil/internal/edge/rpc"
	"vigil/internal/member/replica"
	"vigil/internal/store/wal"
	"vigil/internal/store/watch"
)

// registerMetrics fills the registry: the process, the member under etcd's names, and what others
// count for themselves.
func registerMetrics(reg *prometheus.Registry, r *replica.Replica, quota int64, others ...prometheus.Collector) error {
	for _, c := range append([]prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newMemberCollector(r, quota),
		newTimingCollector(r),
		newOSCollector(),
		knownPeers{r},
	}, append(withoutCounterpart(), others...)...) {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	return nil
}

// reading is one metric and how its value comes out of a scrape.
type reading struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*scrape) float64
}

// memberCollector reads everything it exports at the moment of the scrape, so that counting costs
// the member nothing beyond the counters it has for itself.
type memberCollector struct {
	replica  *replica.Replica
	readings []reading
	constant []prometheus.Metric
	fsync    *prometheus.Desc
	walWrite *prometheus.Desc
	alarms   *prometheus.Desc
	version  *prometheus.Desc
	quota    int64
}

// scrape is what one scrape reads, once.
type scrape struct {
	status  replica.Status
	metrics replica.Metrics
	quota   int64
	hub     watch.Metrics
}

func newMemberCollector(r *replica.Replica, quota int64) *memberCollector {
	c := &memberCollector{
		replica: r,
		quota:   quota,
		alarms: prometheus.NewDesc("etcd_debugging_server_alarms",
			"1 for each active alarm.", []string{"server_id", "alarm_type"}, nil),
		version: prometheus.NewDesc("etcd_cluster_version",
			"Level of the etcd API that the cluster speaks.", []string{"cluster_version"}, nil),
		fsync: prometheus.NewDesc("etcd_disk_wal_fsync_duration_seconds",
			"Time that making a group of the raft log durable takes.", nil, nil),
		walWrite: prometheus.NewDesc("etcd_disk_wal_write_duration_seconds",
			"Time that writing a group of the raft log takes.", nil, nil),
	}
	gauge := func(name, help string, value func(*scrape) float64) {
		c.readings = append(c.readings, reading{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value})
	}
	counter := func(name, help string, value func(*scrape) float64) {
		c.readings = append(c.readings, reading{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, value})
	}
	constant := func(name, help string, labels ...string) {
		var names, values []string
		for i := 0; i+1 < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		c.constant = append(c.constant, prometheus.MustNewConstMetric(
			prometheus.NewDesc(name, help, names, nil), prometheus.GaugeValue, 1, values...))
	}

	gauge("etcd_server_has_leader", "Whether the member knows a leader.", func(s *scrape) float64 { return oneIf(s.status.Leader != 0) })
	gauge("etcd_server_is_leader", "Whether the member is the leader.", func(s *scrape) float64 { return oneIf(s.status.Leader == s.status.MemberID) })
	gauge("etcd_server_is_learner", "Whether the member is a learner.", func(s *scrape) float64 { return oneIf(s.status.Learner) })
	counter("etcd_server_leader_changes_seen_total", "Times a leader became known.", func(s *scrape) float64 { return float64(s.metrics.LeaderChanges) })
	gauge("etcd_server_proposals_committed_total", "Index of the newest committed raft entry.", func(s *scrape) float64 { return float64(s.metrics.Committed) })
	gauge("etcd_server_proposals_applied_total", "Index of the newest applied raft entry.", func(s *scrape) float64 { return float64(s.metrics.Applied) })
	gauge("etcd_server_proposals_pending", "Requests whose outcome is awaited.", func(s *scrape) float64 { return float64(s.metrics.Pending) })
	counter("etcd_server_proposals_failed_total", "Requests that got no outcome.", func(s *scrape) float64 { return float64(s.metrics.Failed) })

	counter("etcd_server_heartbeat_send_failures_total", "Heartbeats that this member, leading, sent too late.", func(s *scrape) float64 { return float64(s.metrics.LateHeartbeats) })
	gauge("etcd_server_snapshot_apply_in_progress_total", "Whether the member is replacing its store by a snapshot.", func(s *scrape) float64 { return oneIf(s.metrics.Snapshots.Installing) })

	gauge("etcd_server_quota_backend_bytes", "Live bytes at which puts are refused.", func(s *scrape) float64 { return float64(s.quota) })
	counter("vigil_scrub_read_bytes_total", "Bytes of sealed segments that the scrubber read.", func(s *scrape) float64 { return float64(s.metrics.Scrubbed) })
	counter("vigil_scrub_rounds_total", "Times the scrubber read everything.", func(s *scrape) float64 { return float64(s.metrics.ScrubRounds) })
	counter("vigil_damage_found_total", "Times a read or the scrubber met damaged data on disk.", func(s *scrape) float64 { return float64(s.metrics.Damaged) })
	counter("vigil_snapshot_sent_full_total", "Snapshots sent to other members with everything in them.", func(s *scrape) float64 { return float64(s.metrics.Snapshots.SentFull) })
	counter("vigil_snapshot_sent_incremental_total", "Snapshots sent to other members with what they lacked.", func(s *scrape) float64 { return float64(s.metrics.Snapshots.SentIncremental) })
	counter("vigil_snapshot_send_failures_total", "Snapshots that could not be sent; each is tried again.", func(s *scrape) float64 { return float64(s.metrics.Snapshots.SendFailures) })
	counter("vigil_snapshot_sent_bytes_total", "Bytes of snapshots sent.", func(s *scrape) float64 { return float64(s.metrics.Snapshots.SentBytes) })
	gauge("vigil_snapshot_sending", "Snapshots that are being sent.", func(s *scrape) float64 { return float64(s.metrics.Snapshots.Sending) })
	counter("vigil_snapshot_received_total", "Snapshots that arrived whole.", func(s *scrape) float64 { return float64(s.metrics.Snapshots.Received) })
	counter("vigil_snapshot_installed_total", "Snapshots that replaced the store.", func(s *scrape) float64 { return float64(s.metrics.Snapshots.Installed) })
	counter("vigil_snapshot_receive_failures_total", "Snapshots that did not arrive whole.", func(s *scrape) float64 { return float64(s.metrics.Snapshots.ReceiveFailures) })
	counter("vigil_snapshot_received_bytes_total", "Bytes of snapshots received.", func(s *scrape) float64 { return float64(s.metrics.Snapshots.ReceivedBytes) })
	counter("vigil_consistency_checks_total", "Times this member, leading, compared the data of all members.", func(s *scrape) float64 { return float64(s.metrics.Comparisons) })
	counter("vigil_consistency_differences_total", "Times it found members whose data differ.", func(s *scrape) float64 { return float64(s.metrics.Differences) })
	gauge("vigil_disk_full", "Whether puts are refused for want of space on the disk.", func(s *scrape) float64 { return oneIf(s.metrics.DiskFull) })

	gauge("etcd_mvcc_db_total_size_in_bytes", "Size of the history on disk.", func(s *scrape) float64 { return float64(s.status.Size) })
	gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "Part of the history that is not known to be garbage.", func(s *scrape) float64 { return float64(s.status.InUse) })
	gauge("etcd_debugging_mvcc_keys_total", "Keys at the newest revision.", func(s *scrape) float64 { return float64(s.metrics.Store.Keys) })
	gauge("etcd_debugging_mvcc_current_revision", "Newest revision.", func(s *scrape) float64 { return float64(s.status.Revision) })
	gauge("etcd_debugging_mvcc_compact_revision", "Revision below which history is gone.", func(s *scrape) float64 { return float64(s.status.CompactRevision) })

	gauge("etcd_debugging_mvcc_watch_stream_total", "Open watch streams.", func(s *scrape) float64 { return float64(s.hub.Streams) })
	gauge("etcd_debugging_mvcc_watcher_total", "Watchers.", func(s *scrape) float64 { return float64(s.hub.Watchers) })
	gauge("etcd_debugging_mvcc_slow_watcher_total", "Watchers that are not live.", func(s *scrape) float64 { return float64(s.hub.Behind) })
	gauge("etcd_debugging_mvcc_pending_events_total", "Events that wait to be sent to watchers.", func(s *scrape) float64 { return float64(s.hub.QueuedEvents) })
	gauge("etcd_debugging_auth_revision", "Revision of users and roles.", func(s *scrape) float64 { return float64(s.metrics.AuthRevision) })

	gauge("vigil_watch_stalled_watchers", "Watchers that wait for their client to read.", func(s *scrape) float64 { return float64(s.hub.Parked) })
	gauge("vigil_watch_largest_lag_revisions", "Published revisions that the watcher farthest behind was not given.", func(s *scrape) float64 { return float64(s.hub.Lag) })
	gauge("vigil_watch_queued_bytes", "Bytes queued for all watch streams.", func(s *scrape) float64 { return float64(s.hub.QueuedBytes) })
	gauge("vigil_watch_unmatched_bytes", "Bytes published and not distributed yet.", func(s *scrape) float64 { return float64(s.hub.RingBytes) })
	gauge("vigil_watch_unmatched_revisions", "Revisions published and not distributed yet.", func(s *scrape) float64 { return float64(s.hub.Published - s.hub.Matched) })
	counter("vigil_watch_fell_behind_total", "Times a live watcher's stream was full.", func(s *scrape) float64 { return float64(s.hub.FellBehindTotal) })
	counter("vigil_watch_compacted_total", "Watchers canceled because compaction overtook them.", func(s *scrape) float64 { return float64(s.hub.CompactedTotal) })
	counter("vigil_watch_revoked_total", "Watchers canceled because their users lost the right to what they watched.", func(s *scrape) float64 { return float64(s.hub.RevokedTotal) })
	counter("vigil_watch_catchup_bytes_total", "Bytes of history read for watchers that were behind.", func(s *scrape) float64 { return float64(s.hub.CatchUpBytesTotal) })

	counter("vigil_history_rewrites_total", "Merged segments of the history written to take space back.", func(s *scrape) float64 { return float64(s.metrics.Reclaim.Rewrites) })
	counter("vigil_history_rewrite_failures_total", "Rewrites of the history given up.", func(s *scrape) float64 { return float64(s.metrics.Reclaim.Failures) })
	counter("vigil_history_rewritten_bytes_total", "Bytes of the merged segments written.", func(s *scrape) float64 { return float64(s.metrics.Reclaim.Written) })
	counter("vigil_history_reclaimed_bytes_total", "Bytes that merged segments are smaller than what they replaced.", func(s *scrape) float64 { return float64(s.metrics.Reclaim.Read - s.metrics.Reclaim.Written) })
	counter("vigil_history_rewrite_seconds_total", "Time spent on rewriting the history.", func(s *scrape) float64 { return s.metrics.Reclaim.Busy.Seconds() })

	gauge("etcd_disk_wal_write_bytes_total", "Bytes written to the raft log.", func(s *scrape) float64 { return float64(s.metrics.WAL.WrittenBytes) })
	gauge("vigil_wal_retained_bytes", "Size of the raft log that is kept.", func(s *scrape) float64 { return float64(s.status.LogSize) })
	counter("vigil_requests_applied_total", "Requests applied since the start; several share a raft entry.", func(s *scrape) float64 { return float64(s.metrics.Requests) })

	constant("etcd_server_version", "Level of the etcd API that is served.", "server_version", APIVersion)
	constant("etcd_server_go_version", "Go version the server was built with.", "server_go_version", runtime.Version())
	constant("etcd_server_id", "Id of the member in hexadecimal.", "server_id", fmt.Sprintf("%x", r.Header().MemberID))
	constant("vigil_build_info", "Version and source revision of this program.", "version", Version, "revision", commit())
	return c
}

// Describe implements prometheus.Collector.
func (c *memberCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, r := range c.readings {
		ch <- r.desc
	}
	for _, m := range c.constant {
		ch <- m.Desc()
	}
	ch <- c.fsync
	ch <- c.walWrite
	ch <- c.alarms
	ch <- c.version
}

// Collect implements prometheus.Collector.
func (c *memberCollector) Collect(ch chan<- prometheus.Metric) {
	s := &scrape{quota: c.quota, status: c.replica.Status(), metrics: c.replica.Metrics(), hub: c.replica.Hub().Metrics()}
	for _, r := range c.readings {
		ch <- prometheus.MustNewConstMetric(r.desc, r.kind, r.value(s))
	}
	for _, m := range c.constant {
		ch <- m
	}
	for _, a := range c.replica.ActiveAlarms() {
		ch <- prometheus.MustNewConstMetric(c.alarms, prometheus.GaugeValue, 1, fmt.Sprintf("%x", a.MemberID), rpc.AlarmName(a.Type))
	}
	ch <- prometheus.MustNewConstMetric(c.version, prometheus.GaugeValue, 1, c.replica.Versions().Cluster.String())
	ch <- latencyHistogram(c.fsync, s.metrics.WAL.Syncs)
	ch <- latencyHistogram(c.walWrite, s.metrics.WAL.Writes)
}

// latencyHistogram turns the log's own counts into cumulative buckets.
func latencyHistogram(desc *prometheus.Desc, l wal.Latency) prometheus.Metric {
	buckets := map[float64]uint64{}
	var sum uint64
	for i, bound := range wal.LatencyBounds() {
		sum += l.Buckets[i]
		buckets[bound.Seconds()] = sum
	}
	return prometheus.MustNewConstHistogram(desc, l.Count, l.Sum.Seconds(), buckets)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
