package rpc

import (
	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/maintenanceapi"
	"vigil/internal/edge/rpc/watchapi"
)

// Metrics are the metrics of calls. It is a prometheus.Collector and may be shared by several
// servers.
type Metrics struct {
	calls     *gate.Metrics
	watching  *watchapi.Metrics
	rangeCut  prometheus.Counter
	snapshots prometheus.Histogram
}

// NewMetrics makes the metrics; if extensive, with a histogram of the time that calls take.
func NewMetrics(extensive bool) *Metrics {
	return &Metrics{
		calls:    gate.NewMetrics(extensive),
		watching: watchapi.NewMetrics(),
		rangeCut: prometheus.NewCounter(prometheus.CounterOpts{Name: "vigil_range_clients_cut_total",
			Help: "Connections closed because the client did not take a large answer while " +
				"others waited for its memory."}),
		snapshots: maintenanceapi.NewSnapshotSeconds(),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.watching, m.rangeCut, m.snapshots}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}
