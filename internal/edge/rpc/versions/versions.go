// Package versions counts calls by the version of the client.
package versions

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Max is the number of client versions with their own counter. A client may send any text, so without a bound it
// could fill the memory with counters.
const Max = 64

// Counters counts calls of one kind by the version of the client. It is safe for concurrent use.
type Counters struct {
	kind string
	vec  *prometheus.CounterVec
	seen sync.Map // version -> prometheus.Counter

	mu struct {
		sync.Mutex
		versions int
	}
}

// New returns counters of vec, which has the labels of kind and version.
func New(kind string, vec *prometheus.CounterVec) *Counters { return &Counters{kind: kind, vec: vec} }

// Known returns the counter of a version that was used before.
func (c *Counters) Known(version string) (prometheus.Counter, bool) {
	n, ok := c.seen.Load(version)
	if !ok {
		return nil, false
	}
	return n.(prometheus.Counter), true
}

// Of returns the counter of a version.
func (c *Counters) Of(version string) prometheus.Counter {
	if n, ok := c.seen.Load(version); ok {
		return n.(prometheus.Counter)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.seen.Load(version); ok {
		return n.(prometheus.Counter)
	}
	if c.mu.versions == Max || len(version) > Max {
		return c.vec.WithLabelValues(c.kind, "other")
	}
	c.mu.versions++
	n := c.vec.WithLabelValues(c.kind, version)
	c.seen.Store(version, n)
	return n
}
