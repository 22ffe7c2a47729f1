package gate

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// Metrics counts calls, messages and bytes with the names of etcd and of the gRPC middlewares. It
// is a prometheus.Collector, and several gates may share it.
type Metrics struct {
	started, received, sent  *prometheus.CounterVec
	handled                  *handledCounters
	seconds                  *prometheus.HistogramVec // nil unless extensive
	bytesReceived, bytesSent prometheus.Counter
	streamFailures           *prometheus.CounterVec
	requests                 *prometheus.CounterVec
	unary, stream            *versionCounters
}

// NewMetrics makes the metrics; if extensive, with a histogram of the time that calls take.
func NewMetrics(extensive bool) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	call := []string{"grpc_type", "grpc_service", "grpc_method"}
	m := &Metrics{
		handled:  newHandledCounters(call),
		started:  counter("grpc_server_started_total", "Calls that were begun.", call...),
		received: counter("grpc_server_msg_received_total", "Messages received.", call...),
		sent:     counter("grpc_server_msg_sent_total", "Messages sent.", call...),
		bytesReceived: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_network_client_grpc_received_bytes_total",
			Help: "Bytes of messages received from clients."}),
		bytesSent: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_network_client_grpc_sent_bytes_total",
			Help: "Bytes of messages sent to clients."}),
		streamFailures: counter("etcd_network_server_stream_failures_total",
			"Streams that failed other than by the client's wish.", "Type", "API"),
		requests: counter("etcd_server_client_requests_total",
			"Calls by kind and by the API version that the client says it has.",
			"type", "client_api_version"),
	}
	if extensive {
		m.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "Time that calls take.",
			Buckets: prometheus.DefBuckets}, call)
	}
	m.unary, m.stream = newVersionCounters("unary", m.requests),
		newVersionCounters("stream", m.requests)
	return m
}

// BytesReceived counts the bytes of messages from clients.
func (m *Metrics) BytesReceived() prometheus.Counter { return m.bytesReceived }

// BytesSent counts the bytes of messages to clients.
func (m *Metrics) BytesSent() prometheus.Counter { return m.bytesSent }

func (m *Metrics) all() []prometheus.Collector {
	list := []prometheus.Collector{m.started, m.handled, m.received, m.sent, m.bytesReceived,
		m.bytesSent, m.streamFailures, m.requests}
	if m.seconds != nil {
		list = append(list, m.seconds)
	}
	return list
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

// methodMetrics are the counters of one method. They are created in advance, so that a method
// without calls is exported as zero and a call costs a few additions.
type methodMetrics struct {
	fullName                string // /service/method
	started, received, sent prometheus.Counter
	handled                 *codeCounters
	seconds                 prometheus.Observer // of all calls; nil unless extensive
	successes               prometheus.Observer // Endpoint.Seconds
}

func (m *Metrics) method(e *Endpoint, service string) *methodMetrics {
	labels := [3]string{e.kind(), service, e.Name}
	mm := &methodMetrics{
		fullName:  "/" + service + "/" + e.Name,
		started:   m.started.WithLabelValues(labels[:]...),
		received:  m.received.WithLabelValues(labels[:]...),
		sent:      m.sent.WithLabelValues(labels[:]...),
		handled:   m.handled.of(labels),
		successes: e.Seconds,
	}
	if m.seconds != nil {
		mm.seconds = m.seconds.WithLabelValues(labels[:]...)
	}
	return mm
}

// countEnd counts a call that ended with a code.
func (mm *methodMetrics) countEnd(code codes.Code, seconds float64) {
	mm.handled.add(code)
	if mm.seconds != nil {
		mm.seconds.Observe(seconds)
	}
	if mm.successes != nil && code == codes.OK {
		mm.successes.Observe(seconds)
	}
}
