package httpd

import "github.com/prometheus/client_golang/prometheus"

// metrics counts health checks under etcd's names.
type metrics struct {
	success, failure prometheus.Counter
	last             *prometheus.GaugeVec
	checks           *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		success: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_server_health_success",
			Help: "Requests of /health that found the member healthy."}),
		failure: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_server_health_failures",
			Help: "Requests of /health that did not."}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "etcd_server_healthcheck",
			Help: "Whether the last run of a check passed."},
			[]string{"type", "name"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_server_healthchecks_total", Help: "Runs of a check by their outcome."},
			[]string{"type", "name", "status"}),
	}
}

func (m *metrics) countCheck(kind, name string, err error) {
	value, outcome := 1.0, "success"
	if err != nil {
		value, outcome = 0, "error"
	}
	m.last.WithLabelValues(kind, name).Set(value)
	m.checks.WithLabelValues(kind, name, outcome).Inc()
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.success, m.failure, m.last, m.checks} {
		c.Collect(ch)
	}
}
