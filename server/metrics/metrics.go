// Package metrics exports the counts of all parts of a member to Prometheus, under etcd's names
// where etcd has the metric.
//
//	registry, err := metrics.NewRegistry(metrics.Sources{Replica: r, Ranges: budget}, rpcMetrics, peerCollector)
//
// The collectors read the parts at each scrape: the parts keep plain counters and do not depend on
// Prometheus. Names and labels are an interface for users: dashboards and alerts depend on them.
package metrics

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"vigil/internal/member/archiver"
	"vigil/internal/member/replica"
	"vigil/internal/store/ration"
)

// Sources are the parts of a member whose counts are exported.
type Sources struct {
	Replica    *replica.Replica
	Ranges     *ration.Budget
	QuotaBytes int64
	// Archiver is nil without an archive.
	Archiver *archiver.Archiver
	Features Features
	// Certificates are the certificates for clients and for members.
	Certificates []Certificates
}

// NewRegistry returns a registry with the metrics of the process, of the sources, and of the parts
// that are collectors themselves.
func NewRegistry(s Sources, others ...prometheus.Collector) (*prometheus.Registry, error) {
	registry := prometheus.NewRegistry()
	all := []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		processCollector,
		clockCollector,
		newMemberCollector(s.Replica, s.QuotaBytes),
		newWatchCollector(s.Replica.Hub()),
		newTimingCollector(s.Replica),
		newLeaseCollector(s.Replica),
		newRangeCollector(s.Ranges),
		membersCollector{s.Replica},
		certificateCollector(s.Certificates),
		s.Features.collector(),
	}
	if s.Archiver != nil {
		all = append(all, newArchiveCollector(s.Archiver))
	}
	all = append(all, buildInfo(s.Replica.Header().MemberID)...)
	all = append(all, unsupported()...)
	for _, c := range append(all, others...) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return registry, nil
}

// reading is a metric without labels, and how its value is read from a source.
type reading[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) float64
}

func gauge[S any](name, help string, value func(S) float64) reading[S] {
	return reading[S]{newDesc(name, help), prometheus.GaugeValue, value}
}

func counter[S any](name, help string, value func(S) float64) reading[S] {
	return reading[S]{newDesc(name, help), prometheus.CounterValue, value}
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// table is a collector of readings that reads its source once for each scrape.
type table[S any] struct {
	source   func() S
	readings []reading[S]
}

// Describe implements prometheus.Collector.
func (t *table[S]) Describe(ch chan<- *prometheus.Desc) {
	for _, r := range t.readings {
		ch <- r.desc
	}
}

// Collect implements prometheus.Collector.
func (t *table[S]) Collect(ch chan<- prometheus.Metric) { t.collect(ch) }

// collect is Collect that also returns the value it read.
func (t *table[S]) collect(ch chan<- prometheus.Metric) S {
	s := t.source()
	for _, r := range t.readings {
		ch <- prometheus.MustNewConstMetric(r.desc, r.kind, r.value(s))
	}
	return s
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
