package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/health"
)

// Sample is a member's description of itself at one time. Members send it to each other as JSON:
// fields may be added.
type Sample struct {
	Version string `json:"version"` // of the program
	At      int64  `json:"at"`      // in milliseconds since 1970, by the member's clock
	// Status is an encoded etcdserverpb.StatusResponse.
	Status []byte `json:"status"`
	// Metrics are the metrics that views and checks use, in the text format of Prometheus.
	Metrics string `json:"metrics"`
	health.Report
}

// measured lists the metrics in a sample.
var measured = map[string]bool{
	health.Puts: true, health.Ranges: true, health.Txns: true, health.Deletes: true,
	health.Events: true, health.Watchers: true,
	health.SlowWatchers: true, health.PendingEvents: true, health.CurrentRevision: true,
	health.CompactRevision: true, health.CompactedAt: true,
	health.WALFsync: true, health.StoreCommit: true, health.Apply: true, health.PeerRoundTrip: true,
	health.SlowApplies:      true,
	health.AppliedProposals: true, health.PendingProposals: true, health.LeaderChanges: true,
	health.OpenFiles: true, health.MaxFiles: true,
	health.ResidentMemory: true, health.StartTime: true, health.LargestWatcherLag: true,
	health.Stalled: true, health.DiskFull: true, health.DataFilesGone: true,
	health.ApplyWaits: true, health.RaftLogWaits: true, health.DamageFound: true,
	health.StalledWatchers: true, health.Differences: true, health.BuildInfo: true,
	health.CertificateExpiry: true, keysTotal: true,
	health.ArchiveLag: true, health.ArchiveRefused: true, health.ArchiveFailing: true,
	health.ArchiveGaps: true,
}

// keysTotal is the metric with the number of keys.
const keysTotal = "etcd_debugging_mvcc_keys_total"

// NewSample returns a sample with a status, the metrics of a registry, and a history's recent
// counts.
func NewSample(st *etcdserverpb.StatusResponse, from prometheus.Gatherer,
	past *health.History) (*Sample, error) {
	s := &Sample{At: time.Now().UnixMilli()}
	var err error
	if s.Status, err = proto.Marshal(st); err != nil {
		return nil, err
	}
	families, err := from.Gather()
	if len(families) == 0 && err != nil {
		return nil, err // some metrics of a process may be missing
	}
	s.Recent = past.Recent(time.Now(), health.GatheredMetrics(families))
	s.Metrics, err = health.FormatMetrics(families, measured)
	return s, err
}

// maxSample limits the sample of another member.
const maxSample = 256 << 10

// DecodeSample decodes the sample of another member.
func DecodeSample(b []byte) (*Sample, error) {
	if len(b) > maxSample {
		return nil, fmt.Errorf("a sample of %d bytes, at most %d", len(b), maxSample)
	}
	s := new(Sample)
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("a sample: %w", err)
	}
	s.Limit()
	return s, nil
}

// reading is a member's report, or the reason why there is none.
type reading struct {
	health.Reading
	version  string
	settings map[string]string
	clock    *health.Clock
	started  float64
}

// read interprets another member's sample, or the error that came instead. sent is when the
// question was sent.
func read(s *Sample, err error, sent time.Time) *reading {
	r := &reading{Reading: health.Reading{At: time.Now(), ByPeer: true}}
	if err == nil {
		st := new(etcdserverpb.StatusResponse)
		if err = proto.Unmarshal(s.Status, st); err == nil {
			r.Status = st
		}
	}
	if err != nil {
		r.StatusErr, r.MetricsErr = err, err
		return r
	}
	// The member took its time between the question and the answer.
	at := time.UnixMilli(s.At)
	r.clock = &health.Clock{Least: at.Sub(r.At.Round(0)),
		Most: at.Add(time.Millisecond).Sub(sent.Round(0))}
	r.version, r.settings = s.Version, s.Settings
	r.Waits, r.Failures = s.Waits, s.Failures
	if r.Metrics, r.MetricsErr = health.ParseMetrics(strings.NewReader(s.Metrics)); r.MetricsErr != nil {
		r.Metrics = nil
	}
	r.Recent, r.Certificates = s.Recent, s.Certificates
	r.started = r.Value(health.StartTime)
	return r
}

// Timing of the measurements: the interval while there is a reader, how long they continue after
// the last reader, and how far back the charts go.
const (
	sampleInterval = 2 * time.Second
	// after this time the first answers are shown without the missing ones
	firstLook     = 500 * time.Millisecond
	sampleLinger  = 30 * time.Second
	sampleHistory = 15 * time.Minute
	maxPoints     = int(sampleHistory / sampleInterval)
)
