package rpc

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"vigil/internal/edge/rpc/versions"
)

// Metrics counts calls, messages and bytes with the names of etcd and of the gRPC middlewares. It is a prometheus.Collector
// and may be shared by several servers.
type Metrics struct {
	started, received, sent  *prometheus.CounterVec
	handled                  handledCalls
	seconds                  *prometheus.HistogramVec // nil unless extensive
	bytesReceived, bytesSent prometheus.Counter
	streamFailures           *prometheus.CounterVec
	requests                 *prometheus.CounterVec
	rangeCut                 prometheus.Counter
	watching                 watchMetrics
	snapshots                prometheus.Histogram
	unary, stream            *versions.Counters
}

// NewMetrics makes the metrics; if extensive, with a histogram of the time that calls take.
func NewMetrics(extensive bool) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	call := []string{"grpc_type", "grpc_service", "grpc_method"}
	m := &Metrics{
		started:       counter("grpc_server_started_total", "Calls that were begun.", call...),
		received:      counter("grpc_server_msg_received_total", "Messages received.", call...),
		sent:          counter("grpc_server_msg_sent_total", "Messages sent.", call...),
		bytesReceived: prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_network_client_grpc_received_bytes_total", Help: "Bytes of messages received from clients."}),
		bytesSent:     prometheus.NewCounter(prometheus.CounterOpts{Name: "etcd_network_client_grpc_sent_bytes_total", Help: "Bytes of messages sent to clients."}),
		streamFailures: counter("etcd_network_server_stream_failures_total",
			"Streams that failed other than by the client's wish.", "Type", "API"),
		requests: counter("etcd_server_client_requests_total", "Calls by kind and by the API version that the client says it has.",
			"type", "client_api_version"),
	}
	m.handled.desc = prometheus.NewDesc("grpc_server_handled_total", "Calls that were ended, by the code they ended with.",
		append(call, "grpc_code"), nil)
	m.rangeCut = prometheus.NewCounter(prometheus.CounterOpts{Name: "vigil_range_clients_cut_total",
		Help: "Connections closed because the client did not take a large answer while others waited for its memory."})
	m.watching = newWatchMetrics()
	m.snapshots = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "etcd_disk_backend_snapshot_duration_seconds",
		Help: "Time that clients take to fetch a snapshot.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 17)})
	if extensive {
		m.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "grpc_server_handling_seconds", Help: "Time that calls take.", Buckets: prometheus.DefBuckets}, call)
	}
	m.unary = versions.New("unary", m.requests)
	m.stream = versions.New("stream", m.requests)
	return m
}

func (m *Metrics) all() []prometheus.Collector {
	list := []prometheus.Collector{m.started, &m.handled, m.received, m.sent, m.bytesReceived, m.bytesSent, m.streamFailures, m.requests, m.rangeCut, m.snapshots}
	list = append(list, m.watching.all()...)
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

// methodMetrics are the counters of one method. They are created in advance, so that a method without calls is exported
// as zero and a call costs a few additions.
type methodMetrics struct {
	fullName                string // /service/method
	started, received, sent prometheus.Counter
	handled                 *callsByCode
	seconds                 prometheus.Observer // nil unless extensive
	all                     prometheus.Observer // of all calls; nil except for Snapshot
}

func (m *Metrics) method(kind, service, method string) *methodMetrics {
	mm := &methodMetrics{
		fullName: "/" + service + "/" + method,
		started:  m.started.WithLabelValues(kind, service, method),
		received: m.received.WithLabelValues(kind, service, method),
		sent:     m.sent.WithLabelValues(kind, service, method),
		handled:  m.handled.of(kind, service, method),
	}
	if m.seconds != nil {
		mm.seconds = m.seconds.WithLabelValues(kind, service, method)
	}
	if mm.fullName == etcdserverpb.Maintenance_Snapshot_FullMethodName {
		mm.all = m.snapshots
	}
	return mm
}

// ended counts a call that ended with a code.
func (mm *methodMetrics) ended(code codes.Code, seconds float64) {
	mm.handled.add(code)
	if mm.seconds != nil {
		mm.seconds.Observe(seconds)
	}
	if mm.all != nil && code == codes.OK {
		mm.all.Observe(seconds)
	}
}
