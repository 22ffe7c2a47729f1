package watchapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/edge/rpc/wire"
)

// Metrics counts responses of watch streams by their kind. It is a prometheus.Collector.
type Metrics struct {
	events                              prometheus.Counter
	delivery, event, progress, controls prometheus.Histogram
}

// NewMetrics makes the metrics.
func NewMetrics() *Metrics {
	seconds := func(what, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "etcd_debugging_server_watch_send_loop_" + what + "_seconds",
			Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)})
	}
	return &Metrics{
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_debugging_mvcc_events_total", Help: "Events sent to watchers."}),
		delivery: seconds("watch_stream_duration",
			"Time that handing a batch of events to the transport takes."),
		event: seconds("watch_stream_duration_per_event",
			"The same, for each event of the batch."),
		progress: seconds("progress_duration",
			"Time that handing progress notifications to the transport takes."),
		controls: seconds("control_stream_duration",
			"Time that handing created and canceled responses to the transport takes."),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.events, m.delivery, m.event, m.progress, m.controls}
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

// countBatch counts a batch of responses and the time of sending it. A batch with events counts as
// events, else a batch with answers as answers, else as progress.
func (m *Metrics) countBatch(batch []wire.WatchResponse, took time.Duration) {
	events, answers := 0, false
	for i := range batch {
		events += batch[i].Count() * len(batch[i].Events)
		answers = answers || batch[i].Created || batch[i].Canceled
	}
	switch {
	case events > 0:
		m.events.Add(float64(events))
		m.delivery.Observe(took.Seconds())
		m.event.Observe(took.Seconds() / float64(events))
	case answers:
		m.controls.Observe(took.Seconds())
	default:
		m.progress.Observe(took.Seconds())
	}
}
