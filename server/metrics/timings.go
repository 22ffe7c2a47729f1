package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/histogram"
	"vigil/internal/member/replica"
	"vigil/internal/member/replica/timing"
	"vigil/internal/store/mvcc"
)

// operations holds the durations and counts of requests and of the store's work for them.
type operations struct {
	timing.Snapshot
	counts mvcc.Counts
}

// timingCollector exports durations of requests and of the work of the store, and counts of
// operations.
type timingCollector struct{ table[*operations] }

func newTimingCollector(r *replica.Replica) *timingCollector {
	source := func() *operations { return &operations{r.Timings(), r.Metrics().Counts} }
	return &timingCollector{table[*operations]{source, operationReadings}}
}

var operationReadings = []reading[*operations]{
	counter("etcd_server_slow_apply_total",
		"Requests that took longer than --warning-apply-duration.",
		func(o *operations) float64 { return float64(o.SlowApplies) }),
	counter("etcd_server_slow_read_indexes_total",
		"Linearizable reads that waited more than half a second for the read index.",
		func(o *operations) float64 { return float64(o.SlowReadIndexes) }),
	counter("etcd_server_read_indexes_failed_total", "Linearizable reads that got no read index.",
		func(o *operations) float64 { return float64(o.FailedReadIndexes) }),
	counter("etcd_mvcc_put_total", "Puts, including those in transactions.",
		func(o *operations) float64 { return float64(o.counts.Puts) }),
	counter("etcd_mvcc_delete_total", "Range deletions, including those in transactions.",
		func(o *operations) float64 { return float64(o.counts.Deletes) }),
	counter("etcd_mvcc_range_total",
		"Ranges, including those in transactions, at the member that answers; not comparisons "+
			"and previous pairs, which etcd counts too.",
		func(o *operations) float64 { return float64(o.counts.Ranges) }),
	counter("etcd_mvcc_txn_total", "Transactions of more than one operation.",
		func(o *operations) float64 { return float64(o.counts.Txns) }),
	gauge("etcd_debugging_mvcc_total_put_size_in_bytes",
		"Bytes of keys and values put since the start.",
		func(o *operations) float64 { return float64(o.counts.PutBytes) }),
	counter("etcd_debugging_mvcc_db_compaction_keys_total",
		"Records that compactions have removed from the index.",
		func(o *operations) float64 { return float64(o.counts.DroppedRecords) }),
	gauge("etcd_debugging_mvcc_db_compaction_last",
		"Time of the last such removal, in seconds since 1970; 0 if there was none since "+
			"the start.",
		func(o *operations) float64 {
			if o.counts.LastTrimmed.IsZero() {
				return 0
			}
			return float64(o.counts.LastTrimmed.Unix())
		}),
}

var (
	requestTimes = newDesc("etcd_server_request_duration_seconds",
		"Time from a client's request to its outcome.", "type", "success")
	applyTimes = newDesc("etcd_server_apply_duration_seconds",
		"Time to apply a committed request.", "version", "op", "success")
	rangeTimes = newDesc("etcd_server_range_duration_seconds",
		"Time to read keys, without the time before the read.", "success")
)

// operationTimes are the histograms without labels.
var operationTimes = []struct {
	desc  *prometheus.Desc
	unit  time.Duration
	value func(*operations) histogram.Snapshot
}{
	{newDesc("etcd_disk_backend_commit_duration_seconds", "Time to write a batch to the history."),
		time.Second,
		func(o *operations) histogram.Snapshot { return o.Commits }},
	{newDesc("etcd_debugging_disk_backend_commit_write_duration_seconds",
		"Like etcd_disk_backend_commit_duration_seconds."), time.Second,
		func(o *operations) histogram.Snapshot { return o.Commits }},
	{newDesc("etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
		"Time that one slice of a background compaction blocks writes."), time.Millisecond,
		func(o *operations) histogram.Snapshot { return o.counts.Slices }},
	{newDesc("etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds",
		"Like etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds."), time.Millisecond,
		func(o *operations) histogram.Snapshot { return o.counts.Slices }},
	{newDesc("etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
		"Time until a compaction has removed all its records from the index."), time.Millisecond,
		func(o *operations) histogram.Snapshot { return o.counts.Trims }},
}

// Describe implements prometheus.Collector.
func (c *timingCollector) Describe(ch chan<- *prometheus.Desc) {
	c.table.Describe(ch)
	ch <- requestTimes
	ch <- applyTimes
	ch <- rangeTimes
	for _, t := range operationTimes {
		ch <- t.desc
	}
}

// Collect implements prometheus.Collector.
func (c *timingCollector) Collect(ch chan<- prometheus.Metric) {
	o := c.collect(ch)
	for _, r := range o.Requests {
		ch <- constHistogram(requestTimes, r.Times, time.Second, r.Kind,
			strconv.FormatBool(r.Succeeded))
	}
	for _, r := range o.Applied {
		ch <- constHistogram(applyTimes, r.Times, time.Second, "v3", r.Kind,
			strconv.FormatBool(r.Succeeded))
	}
	for i, s := range o.Ranges {
		if s.Count() > 0 {
			ch <- constHistogram(rangeTimes, s, time.Second, strconv.FormatBool(i == 1))
		}
	}
	for _, t := range operationTimes {
		ch <- constHistogram(t.desc, t.value(o), t.unit)
	}
}

func constHistogram(desc *prometheus.Desc, s histogram.Snapshot, unit time.Duration,
	labels ...string) prometheus.Metric {
	return prometheus.MustNewConstHistogram(desc, s.Count(), float64(s.Sum)/float64(unit),
		s.Cumulative(unit), labels...)
}
