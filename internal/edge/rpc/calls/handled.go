package calls

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// Handled counts ended calls by method and code. Nearly all of the numbers stay 0, and a prometheus.Counter takes a kilobyte, so
// they become metrics only when they are collected.
type Handled struct {
	desc *prometheus.Desc
	mu   struct {
		sync.Mutex
		methods []*ByCode
	}
}

// ByCode are the numbers of one method.
type ByCode struct {
	labels [3]string
	count  [codes.Unauthenticated + 1]atomic.Uint64
}

// Of returns the numbers of a method, which several servers may share.
func (h *Handled) Of(kind, service, method string) *ByCode {
	labels := [3]string{kind, service, method}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.mu.methods {
		if c.labels == labels {
			return c
		}
	}
	c := &ByCode{labels: labels}
	h.mu.methods = append(h.mu.methods, c)
	return c
}

// Add counts a call that ended with a code.
func (c *ByCode) Add(code codes.Code) {
	if int(code) >= len(c.count) {
		code = codes.Unknown
	}
	c.count[code].Add(1)
}

// NewHandled returns counters without calls.
func NewHandled() *Handled {
	return &Handled{desc: prometheus.NewDesc("grpc_server_handled_total", "Calls that were ended, by the code they ended with.",
		[]string{"grpc_type", "grpc_service", "grpc_method", "grpc_code"}, nil)}
}

// Describe implements prometheus.Collector.
func (h *Handled) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect implements prometheus.Collector.
func (h *Handled) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	methods := h.mu.methods // only appended to
	h.mu.Unlock()
	for _, c := range methods {
		for code := range c.count {
			n := float64(c.count[code].Load())
			ch <- prometheus.MustNewConstMetric(h.desc, prometheus.CounterValue, n, c.labels[0], c.labels[1], c.labels[2], codes.Code(code).String())
		}
	}
}
