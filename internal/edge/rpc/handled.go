package rpc

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// handledCalls counts ended calls by method and code. Nearly all of the numbers stay 0, and a prometheus.Counter takes a kilobyte, so
// they become metrics only when they are collected.
type handledCalls struct {
	desc *prometheus.Desc
	mu   struct {
		sync.Mutex
		methods []*callsByCode
	}
}

// callsByCode are the numbers of one method.
type callsByCode struct {
	labels [3]string
	count  [codes.Unauthenticated + 1]atomic.Uint64
}

// of returns the numbers of a method, which several servers may share.
func (h *handledCalls) of(kind, service, method string) *callsByCode {
	labels := [3]string{kind, service, method}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.mu.methods {
		if c.labels == labels {
			return c
		}
	}
	c := &callsByCode{labels: labels}
	h.mu.methods = append(h.mu.methods, c)
	return c
}

// add counts a call that ended with a code.
func (c *callsByCode) add(code codes.Code) {
	if int(code) >= len(c.count) {
		code = codes.Unknown
	}
	c.count[code].Add(1)
}

// Describe implements prometheus.Collector.
func (h *handledCalls) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect implements prometheus.Collector.
func (h *handledCalls) Collect(ch chan<- prometheus.Metric) {
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
