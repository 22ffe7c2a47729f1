package server

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/histogram"
	"vigil/internal/member/replica"
	"vigil/internal/store/mvcc"
)

// timingCollector exports how long things took, and what the store has done, under etcd's names.
type timingCollector struct {
	replica                          *replica.Replica
	requests, applied, ranges        *prometheus.Desc
	commits, writes                  *prometheus.Desc
	trimSlices, indexSlices, trims   *prometheus.Desc
	slowApplies, slowReads, noReads  *prometheus.Desc
	putOps, deleteOps, rangeOps, txn *prometheus.Desc
	putBytes, dropped, lastTrimmed   *prometheus.Desc
}

func newTimingCollector(r *replica.Replica) *timingCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &timingCollector{
		replica:  r,
		requests: desc("etcd_server_request_duration_seconds", "Time from a client's request until its outcome is known.", "type", "success"),
		applied:  desc("etcd_server_apply_duration_seconds", "Time that carrying out a committed request takes.", "version", "op", "success"),
		ranges:   desc("etcd_server_range_duration_seconds", "Time that reading keys takes, without the waiting before it.", "success"),
		commits:  desc("etcd_disk_backend_commit_duration_seconds", "Time that writing a batch to the history takes."),
		writes:   desc("etcd_debugging_disk_backend_commit_write_duration_seconds", "The same."),

		trimSlices:  desc("etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds", "Time that writes wait at once for what a compaction does in the background."),
		indexSlices: desc("etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds", "The same."),
		trims:       desc("etcd_debugging_mvcc_db_compaction_total_duration_milliseconds", "Time until the index holds nothing any more that a compaction has made needless."),
		dropped:     desc("etcd_debugging_mvcc_db_compaction_keys_total", "Records that compactions have dropped from the index."),
		lastTrimmed: desc("etcd_debugging_mvcc_db_compaction_last", "When that was done last, in seconds since 1970; 0 if not since the start."),

		slowApplies: desc("etcd_server_slow_apply_total", "Requests that took longer than --warning-apply-duration."),
		slowReads:   desc("etcd_server_slow_read_indexes_total", "Linearizable reads for which the cluster took more than half a second to agree."),
		noReads:     desc("etcd_server_read_indexes_failed_total", "Linearizable reads for which the cluster did not agree."),

		putOps:    desc("etcd_mvcc_put_total", "Puts, those in transactions among them."),
		deleteOps: desc("etcd_mvcc_delete_total", "Range deletions, those in transactions among them."),
		rangeOps:  desc("etcd_mvcc_range_total", "Ranges, those in transactions among them."),
		txn:       desc("etcd_mvcc_txn_total", "Transactions of more than one operation."),
		putBytes:  desc("etcd_debugging_mvcc_total_put_size_in_bytes", "Keys and values put since the start."),
	}
}

// Describe implements prometheus.Collector.
func (c *timingCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.requests, c.applied, c.ranges, c.commits, c.writes, c.trimSlices, c.indexSlices, c.trims,
		c.slowApplies, c.slowReads, c.noReads, c.putOps, c.deleteOps, c.rangeOps, c.txn, c.putBytes, c.dropped, c.lastTrimmed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *timingCollector) Collect(ch chan<- prometheus.Metric) {
	t, n := c.replica.Timings(), c.replica.Metrics().Counts
	for _, r := range t.Requests {
		ch <- constHistogram(c.requests, r.Times, time.Second, r.Kind, strconv.FormatBool(r.Succeeded))
	}
	for _, r := range t.Applied {
		ch <- constHistogram(c.applied, r.Times, time.Second, "v3", r.Kind, strconv.FormatBool(r.Succeeded))
	}
	for i, s := range t.Ranges {
		if s.Count() > 0 {
			ch <- constHistogram(c.ranges, s, time.Second, strconv.FormatBool(i == 1))
		}
	}
	ch <- constHistogram(c.commits, t.Commits, time.Second)
	ch <- constHistogram(c.writes, t.Commits, time.Second)
	ch <- constHistogram(c.trimSlices, n.Slices, time.Millisecond)
	ch <- constHistogram(c.indexSlices, n.Slices, time.Millisecond)
	ch <- constHistogram(c.trims, n.Trims, time.Millisecond)
	c.collectCounts(ch, &t, &n)
}

func (c *timingCollector) collectCounts(ch chan<- prometheus.Metric, t *replica.Timings, n *mvcc.Counts) {
	for _, m := range []struct {
		desc  *prometheus.Desc
		value uint64
	}{{c.slowApplies, t.SlowApplies}, {c.slowReads, t.SlowReadIndexes}, {c.noReads, t.FailedReadIndexes}, {c.putOps, n.Puts},
		{c.deleteOps, n.Deletes}, {c.rangeOps, n.Ranges}, {c.txn, n.Txns}, {c.dropped, n.DroppedRecords}} {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.value))
	}
	last := 0.0
	if !n.LastTrimmed.IsZero() {
		last = float64(n.LastTrimmed.Unix())
	}
	ch <- prometheus.MustNewConstMetric(c.lastTrimmed, prometheus.GaugeValue, last)
	ch <- prometheus.MustNewConstMetric(c.putBytes, prometheus.GaugeValue, float64(n.PutBytes))
}

func constHistogram(desc *prometheus.Desc, s histogram.Snapshot, unit time.Duration, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstHistogram(desc, s.Count(), float64(s.Sum)/float64(unit), s.Cumulative(unit), labels...)
}
