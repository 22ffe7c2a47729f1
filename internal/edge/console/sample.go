package console

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Sample is the measurements of a member at one time. Members send it to each other as JSON: fields may be added.
type Sample struct {
	Member   string   `json:"member"` // in hexadecimal digits, like Leader
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	At       int64    `json:"at"` // in milliseconds since 1970, by the member's clock
	Leader   string   `json:"leader"`
	Learner  bool     `json:"learner,omitempty"`
	DiskFull bool     `json:"disk_full,omitempty"`
	Alarms   []string `json:"alarms,omitempty"`

	Term            uint64 `json:"term"`
	Applied         uint64 `json:"applied"`
	RaftIndex       uint64 `json:"raft_index"`
	Revision        int64  `json:"revision"`
	CompactRevision int64  `json:"compact_revision"`
	Size            int64  `json:"size"`
	InUse           int64  `json:"in_use"`
	Quota           int64  `json:"quota"`

	Values map[string]float64 `json:"values"`
	Times  map[string]Times   `json:"times,omitempty"`
}

// Times is a histogram of durations: how often one was observed, and how many seconds they took together.
type Times struct {
	Count  uint64   `json:"count"`
	Sum    float64  `json:"sum"`
	Bounds []Bucket `json:"bounds,omitempty"`
}

// Bucket is the number of durations up to a bound in seconds.
type Bucket struct {
	To    float64 `json:"to"`
	Count uint64  `json:"count"`
}

// measured are the metrics of a sample by their short names.
var measured = map[string]string{
	"etcd_mvcc_put_total":                           "puts",
	"etcd_mvcc_range_total":                         "reads",
	"etcd_mvcc_txn_total":                           "transactions",
	"etcd_mvcc_delete_total":                        "deletes",
	"etcd_debugging_mvcc_events_total":              "events",
	"etcd_debugging_mvcc_watcher_total":             "watchers",
	"etcd_debugging_mvcc_slow_watcher_total":        "slow_watchers",
	"vigil_watch_largest_lag_revisions":             "watcher_lag",
	"vigil_watch_queued_bytes":                      "watch_queued",
	"vigil_watch_stalled_watchers":                  "stalled_watchers",
	"etcd_debugging_mvcc_keys_total":                "keys",
	"etcd_debugging_mvcc_current_revision":          "revision",
	"etcd_debugging_mvcc_compact_revision":          "compact_revision",
	"etcd_server_proposals_pending":                 "pending",
	"etcd_server_leader_changes_seen_total":         "leader_changes",
	"etcd_server_slow_apply_total":                  "slow_applies",
	"vigil_damage_found_total":                      "damage",
	"vigil_consistency_differences_total":           "differences",
	"vigil_leases":                                  "leases",
	"process_start_time_seconds":                    "started",
	"process_resident_memory_bytes":                 "memory",
	"process_cpu_seconds_total":                     "cpu",
	"process_open_fds":                              "files",
	"process_max_fds":                               "max_files",
	"etcd_disk_wal_fsync_duration_seconds":          "fsync",
	"etcd_disk_backend_commit_duration_seconds":     "commit",
	"etcd_server_apply_duration_seconds":            "apply",
	"etcd_network_peer_round_trip_time_seconds":     "round_trip",
	"etcd_debugging_mvcc_db_compaction_last":        "compacted_at",
	"vigil_certificate_expiry_timestamp_seconds":    "certificate_expiry",
	"etcd_server_snapshot_apply_in_progress_total":  "installing",
	"vigil_history_reclaimed_bytes_total":           "reclaimed",
	"vigil_watch_fell_behind_total":                 "fell_behind",
	"vigil_watch_compacted_total":                   "compacted_watchers",
	"etcd_server_slow_read_indexes_total":           "slow_reads",
	"etcd_server_proposals_failed_total":            "failed",
	"etcd_debugging_mvcc_pending_events_total":      "pending_events",
	"vigil_range_waiting":                           "waiting_reads",
	"etcd_debugging_mvcc_watch_stream_total":        "watch_streams",
	"etcd_network_client_grpc_received_bytes_total": "received",
	"etcd_network_client_grpc_sent_bytes_total":     "sent",
	"etcd_server_heartbeat_send_failures_total":     "late_heartbeats",
}

// Measure adds the metrics of a registry to a sample. Series of one metric are added up, except for times of expiry, of which the
// earliest counts.
func (s *Sample) Measure(from prometheus.Gatherer) error {
	families, err := from.Gather()
	s.Values, s.Times = map[string]float64{}, map[string]Times{}
	for _, f := range families {
		name := measured[f.GetName()]
		if name == "" {
			continue
		}
		for _, m := range f.GetMetric() {
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				s.Times[name] = s.Times[name].add(m.GetHistogram())
			default:
				v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
				if old, ok := s.Values[name]; ok && name == "certificate_expiry" {
					v = min(v, old)
				} else {
					v += old
				}
				if !math.IsNaN(v) && !math.IsInf(v, 0) {
					s.Values[name] = v
				}
			}
		}
	}
	s.Revision, s.CompactRevision = int64(s.Values["revision"]), int64(s.Values["compact_revision"])
	if len(s.Values) > 0 {
		return nil // some metrics of a process may be missing
	}
	return err
}

// add adds a histogram with the same bounds.
func (t Times) add(h *dto.Histogram) Times {
	t.Count += h.GetSampleCount()
	t.Sum += h.GetSampleSum()
	same := len(t.Bounds) == len(h.GetBucket())
	var bounds []Bucket
	for i, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 0) {
			continue
		}
		x := Bucket{b.GetUpperBound(), b.GetCumulativeCount()}
		if same {
			x.Count += t.Bounds[i].Count
		}
		bounds = append(bounds, x)
	}
	t.Bounds = bounds
	return t
}

// maxSample limits the sample of another member.
const maxSample = 64 << 10

// DecodeSample decodes the sample of another member.
func DecodeSample(b []byte) (*Sample, error) {
	if len(b) > maxSample {
		return nil, fmt.Errorf("a sample of %d bytes, at most %d", len(b), maxSample)
	}
	s := new(Sample)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("a sample: %w", err)
	}
	return s, nil
}

// since returns the quantile of the observations between two samples, in seconds; ok is false if there was none.
func (t Times) since(old Times, q float64) (seconds float64, ok bool) {
	n := int64(t.Count) - int64(old.Count)
	if n <= 0 || len(t.Bounds) == 0 {
		return 0, false
	}
	low, below := 0.0, int64(0)
	want := q * float64(n)
	for i, b := range t.Bounds {
		count := int64(b.Count)
		if i < len(old.Bounds) && old.Count > 0 {
			count -= int64(old.Bounds[i].Count)
		}
		if float64(count) >= want && count > below {
			return low + (b.To-low)*(want-float64(below))/float64(count-below), true
		}
		low, below = b.To, count
	}
	return low, true // above the last bound
}

// sampleInterval is how often members are measured while there is a reader, sampleLinger how long after the last one. history is how far
// the charts go back.
const (
	sampleInterval = 2 * time.Second
	sampleLinger   = 30 * time.Second
	sampleHistory  = 15 * time.Minute
	maxPoints      = int(sampleHistory / sampleInterval)
)
