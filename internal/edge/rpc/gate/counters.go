package gate

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// handledCounters counts ended calls by method and code. Nearly all of these numbers stay 0, and a
// prometheus.Counter takes a kilobyte, so they become metrics only when they are collected.
type handledCounters struct {
	desc *prometheus.Desc
	mu   struct {
		sync.Mutex
		methods []*codeCounters
	}
}

// codeCounters are the numbers of one method.
type codeCounters struct {
	labels [3]string
	count  [codes.Unauthenticated + 1]atomic.Uint64
}

// newHandledCounters returns counters without calls. labels are the names of a method's labels.
func newHandledCounters(labels []string) *handledCounters {
	return &handledCounters{desc: prometheus.NewDesc("grpc_server_handled_total",
		"Calls that were ended, by the code they ended with.",
		append(labels[:len(labels):len(labels)], "grpc_code"), nil)}
}

// of returns the numbers of a method, which several gates may share.
func (h *handledCounters) of(labels [3]string) *codeCounters {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.mu.methods {
		if c.labels == labels {
			return c
		}
	}
	c := &codeCounters{labels: labels}
	h.mu.methods = append(h.mu.methods, c)
	return c
}

// add counts a call that ended with a code.
func (c *codeCounters) add(code codes.Code) {
	if int(code) >= len(c.count) {
		code = codes.Unknown
	}
	c.count[code].Add(1)
}

// Describe implements prometheus.Collector.
func (h *handledCounters) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect implements prometheus.Collector.
func (h *handledCounters) Collect(ch chan<- prometheus.Metric) {
	h.mu.Lock()
	methods := h.mu.methods // only appended to
	h.mu.Unlock()
	for _, c := range methods {
		for code := range c.count {
			n := float64(c.count[code].Load())
			ch <- prometheus.MustNewConstMetric(h.desc, prometheus.CounterValue, n, c.labels[0],
				c.labels[1], c.labels[2], codes.Code(code).String())
		}
	}
}

// MaxVersions is the number of client versions with their own counter, and the largest length of
// such a version in bytes. A client may send any text, so without a limit it could fill the memory
// with counters.
const MaxVersions = 64

// unknownVersion is the version of clients that send none.
const unknownVersion = "unknown"

// versionCounters counts calls of one kind by the version of the client. It is safe for concurrent
// use.
type versionCounters struct {
	kind string
	vec  *prometheus.CounterVec
	seen sync.Map // version -> prometheus.Counter

	mu struct {
		sync.Mutex
		versions int
	}
}

// newVersionCounters returns counters of vec, which has the labels of kind and version.
func newVersionCounters(kind string, vec *prometheus.CounterVec) *versionCounters {
	return &versionCounters{kind: kind, vec: vec}
}

// known returns the counter of a version that was used before.
func (c *versionCounters) known(version string) (prometheus.Counter, bool) {
	n, ok := c.seen.Load(version)
	if !ok {
		return nil, false
	}
	return n.(prometheus.Counter), true
}

// of returns the counter of a version.
func (c *versionCounters) of(version string) prometheus.Counter {
	if n, ok := c.known(version); ok {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.known(version); ok {
		return n
	}
	if c.mu.versions == MaxVersions || len(version) > MaxVersions {
		return c.vec.WithLabelValues(c.kind, "other")
	}
	c.mu.versions++
	n := c.vec.WithLabelValues(c.kind, version)
	c.seen.Store(version, n)
	return n
}
