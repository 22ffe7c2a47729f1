package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/member/replica"
)

// memberState holds the values that memberCollector reads for one scrape.
type memberState struct {
	replica.Status
	replica.Metrics
	quota   int64
	serving bool
}

// memberCollector exports the state of the replica and of its store.
type memberCollector struct {
	table[*memberState]
	replica *replica.Replica
}

func newMemberCollector(r *replica.Replica, quota int64) *memberCollector {
	source := func() *memberState { return &memberState{r.Status(), r.Metrics(), quota, serves(r)} }
	return &memberCollector{table[*memberState]{source, memberReadings}, r}
}

// serves reports whether the member serves clients, or did.
func serves(r *replica.Replica) bool {
	select {
	case <-r.Ready():
		return true
	default:
		return false
	}
}

var memberReadings = []reading[*memberState]{
	gauge("etcd_server_has_leader", "Whether the member knows a leader.",
		func(s *memberState) float64 { return boolValue(s.Leader != 0) }),
	gauge("etcd_server_is_leader", "Whether the member is the leader.",
		func(s *memberState) float64 { return boolValue(s.Leader == s.MemberID) }),
	gauge("etcd_server_is_learner", "Whether the member is a learner.",
		func(s *memberState) float64 { return boolValue(s.Learner) }),
	counter("etcd_server_leader_changes_seen_total", "Changes of leader observed.",
		func(s *memberState) float64 { return float64(s.LeaderChanges) }),
	gauge("etcd_server_proposals_committed_total", "Index of the newest committed raft entry.",
		func(s *memberState) float64 { return float64(s.Committed) }),
	gauge("etcd_server_proposals_applied_total", "Index of the newest applied raft entry.",
		func(s *memberState) float64 { return float64(s.Metrics.Applied) }),
	gauge("etcd_server_proposals_pending", "Requests without an outcome yet.",
		func(s *memberState) float64 { return float64(s.Pending) }),
	counter("etcd_server_proposals_failed_total", "Requests that ended without a known outcome.",
		func(s *memberState) float64 { return float64(s.Failed) }),

	counter("etcd_server_heartbeat_send_failures_total",
		"Heartbeats that this member sent too late as the leader.",
		func(s *memberState) float64 { return float64(s.LateHeartbeats) }),
	gauge("vigil_member_serving",
		"Whether the member serves clients: 0 while it waits for other members, or for the "+
			"leader's data, after its start.",
		func(s *memberState) float64 { return boolValue(s.serving) }),
	gauge("vigil_member_stalled",
		"Whether nothing was written to the raft log, or applied, for an election timeout though "+
			"there was something.",
		func(s *memberState) float64 { return boolValue(s.Stalled) }),
	counter("vigil_leader_handovers_total",
		"Times this member has handed leadership over because others did what it had not done "+
			"in time.",
		func(s *memberState) float64 { return float64(s.Relieved) }),
	gauge("etcd_server_snapshot_apply_in_progress_total",
		"Whether the member is replacing its store with a snapshot.",
		func(s *memberState) float64 { return boolValue(s.Received.Installing) }),
	counter("vigil_requests_applied_total",
		"Requests applied since the start; a raft entry contains one or several.",
		func(s *memberState) float64 { return float64(s.Requests) }),
	gauge("etcd_debugging_auth_revision", "Revision of users and roles.",
		func(s *memberState) float64 { return float64(s.AuthRevision) }),
	gauge("vigil_auth_simple_tokens", "Simple tokens that the member keeps.",
		func(s *memberState) float64 { return float64(s.Tokens.Tokens) }),
	counter("vigil_auth_simple_tokens_evicted_total",
		"Simple tokens that ended because there were too many, of their user or in total.",
		func(s *memberState) float64 { return float64(s.Tokens.Evicted) }),

	gauge("etcd_server_quota_backend_bytes", "Live bytes at which puts are rejected.",
		func(s *memberState) float64 { return float64(s.quota) }),
	gauge("etcd_mvcc_db_total_size_in_bytes", "Size of the history on disk.",
		func(s *memberState) float64 { return float64(s.Size) }),
	gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "Size of the history without known garbage.",
		func(s *memberState) float64 { return float64(s.InUse) }),
	gauge("etcd_debugging_mvcc_keys_total", "Keys at the newest revision.",
		func(s *memberState) float64 { return float64(s.Store.Keys) }),
	gauge("etcd_debugging_mvcc_current_revision", "Newest revision.",
		func(s *memberState) float64 { return float64(s.Revision) }),
	gauge("etcd_debugging_mvcc_compact_revision",
		"Compact revision: older history is no longer readable.",
		func(s *memberState) float64 { return float64(s.CompactRevision) }),

	counter("vigil_scrub_read_bytes_total", "Bytes of sealed segments that the scrubber read.",
		func(s *memberState) float64 { return float64(s.Scrubbed) }),
	counter("vigil_scrub_rounds_total",
		"Completed rounds of the scrubber over all sealed segments.",
		func(s *memberState) float64 { return float64(s.ScrubRounds) }),
	counter("vigil_damage_found_total",
		"Places on disk where a read or the scrubber found damaged data, 1000 at most; one that "+
			"is met again counts once.",
		func(s *memberState) float64 { return float64(s.Damaged) }),
	counter("vigil_snapshot_sent_full_total", "Full snapshots sent to other members.",
		func(s *memberState) float64 { return float64(s.Sent.Full) }),
	counter("vigil_snapshot_sent_incremental_total", "Incremental snapshots sent to other members.",
		func(s *memberState) float64 { return float64(s.Sent.Incremental) }),
	counter("vigil_snapshot_send_failures_total",
		"Snapshots that could not be sent; each is retried.",
		func(s *memberState) float64 { return float64(s.Sent.Failures) }),
	counter("vigil_snapshot_sent_bytes_total", "Bytes of snapshots sent.",
		func(s *memberState) float64 { return float64(s.Sent.Bytes) }),
	gauge("vigil_snapshot_sending", "Snapshots being sent.",
		func(s *memberState) float64 { return float64(s.Sent.Sending) }),
	counter("vigil_snapshot_received_total", "Snapshots received completely.",
		func(s *memberState) float64 { return float64(s.Received.Received) }),
	counter("vigil_snapshot_installed_total", "Snapshots that replaced the store.",
		func(s *memberState) float64 { return float64(s.Received.Installed) }),
	counter("vigil_snapshot_receive_failures_total", "Snapshots that were not received completely.",
		func(s *memberState) float64 { return float64(s.Received.Failures) }),
	counter("vigil_snapshot_received_bytes_total", "Bytes of snapshots received.",
		func(s *memberState) float64 { return float64(s.Received.Bytes) }),
	counter("vigil_consistency_checks_total",
		"Comparisons of the data of all members by this member as the leader.",
		func(s *memberState) float64 { return float64(s.Comparisons) }),
	counter("vigil_consistency_differences_total",
		"Comparisons that found members with different data.",
		func(s *memberState) float64 { return float64(s.Differences) }),
	gauge("vigil_disk_full", "Whether puts are rejected for lack of disk space.",
		func(s *memberState) float64 { return boolValue(s.DiskFull) }),
	gauge("vigil_apply_waits_for_space",
		"Whether committed entries cannot be applied for lack of disk space.",
		func(s *memberState) float64 { return boolValue(!s.ApplyWaits.IsZero()) }),
	gauge("vigil_data_files_gone",
		"Whether files of the member are not where their paths lead: it accepts no writes.",
		func(s *memberState) float64 { return boolValue(s.Away != "") }),
	gauge("vigil_raft_log_waits_for_space",
		"Whether the raft log takes no entries for lack of disk space.",
		func(s *memberState) float64 { return boolValue(!s.LogWaits.IsZero()) }),

	counter("vigil_history_rewrites_total",
		"Merged segments of the history written to reclaim space.",
		func(s *memberState) float64 { return float64(s.Reclaim.Rewrites) }),
	counter("vigil_history_rewrite_failures_total", "Aborted rewrites of the history.",
		func(s *memberState) float64 { return float64(s.Reclaim.Failures) }),
	counter("vigil_history_rewritten_bytes_total", "Bytes of merged segments written.",
		func(s *memberState) float64 { return float64(s.Reclaim.Written) }),
	counter("vigil_history_reclaimed_bytes_total",
		"Bytes of disk space reclaimed by merged segments.",
		func(s *memberState) float64 { return float64(s.Reclaim.Read - s.Reclaim.Written) }),
	counter("vigil_history_rewrite_seconds_total", "Time spent rewriting the history.",
		func(s *memberState) float64 { return s.Reclaim.Busy.Seconds() }),
	gauge("etcd_disk_wal_write_bytes_total", "Bytes written to the raft log.",
		func(s *memberState) float64 { return float64(s.WAL.WrittenBytes) }),
	gauge("vigil_wal_retained_bytes", "Size of the retained raft log.",
		func(s *memberState) float64 { return float64(s.LogSize) }),
}

var (
	activeAlarms = newDesc("etcd_debugging_server_alarms", "1 for each active alarm.",
		"server_id", "alarm_type")
	clusterVersion = newDesc("etcd_cluster_version", "Level of the etcd API of the cluster.",
		"cluster_version")
	elections = newDesc("vigil_elections_started_total",
		"Elections that this member has begun.", "cause")
	walSync = newDesc("etcd_disk_wal_fsync_duration_seconds",
		"Time to make a group of raft entries durable.")
	walWrite = newDesc("etcd_disk_wal_write_duration_seconds",
		"Time to write a group of raft entries.")
)

// Describe implements prometheus.Collector.
func (c *memberCollector) Describe(ch chan<- *prometheus.Desc) {
	c.table.Describe(ch)
	for _, d := range []*prometheus.Desc{activeAlarms, clusterVersion, elections,
		walSync, walWrite} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *memberCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.collect(ch)
	for _, a := range c.replica.Alarms.Active() {
		ch <- prometheus.MustNewConstMetric(activeAlarms, prometheus.GaugeValue, 1,
			fmt.Sprintf("%x", a.MemberID), a.Type.String())
	}
	ch <- prometheus.MustNewConstMetric(clusterVersion, prometheus.GaugeValue, 1,
		c.replica.API.Versions().Cluster.String())
	for cause, n := range s.Elections {
		ch <- prometheus.MustNewConstMetric(elections, prometheus.CounterValue, float64(n),
			cause.String())
	}
	ch <- constHistogram(walSync, s.WAL.Syncs, time.Second)
	ch <- constHistogram(walWrite, s.WAL.Writes, time.Second)
}
