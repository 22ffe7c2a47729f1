package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/member/replica"
	"vigil/internal/member/replica/lessor"
)

// leaseCollector exports the counts of leases.
type leaseCollector struct {
	table[lessor.Stats]
	ttls *prometheus.Desc
}

func newLeaseCollector(r *replica.Replica) *leaseCollector {
	type stats = lessor.Stats
	return &leaseCollector{
		ttls: newDesc("etcd_debugging_lease_ttl_total",
			"Times to live of the granted leases, in seconds."),
		table: table[stats]{source: r.Leases.Stats, readings: []reading[stats]{
			counter("etcd_debugging_lease_granted_total", "Leases granted.",
				func(s stats) float64 { return float64(s.Granted) }),
			counter("etcd_debugging_lease_revoked_total",
				"Leases revoked, including expired leases.",
				func(s stats) float64 { return float64(s.Revoked) }),
			counter("etcd_debugging_lease_renewed_total",
				"Keep-alives granted by this member as the leader.",
				func(s stats) float64 { return float64(s.Renewed) }),
			counter("etcd_debugging_server_lease_expired_total",
				"Leases expired by this member as the leader.",
				func(s stats) float64 { return float64(s.Expired) }),
			gauge("vigil_leases", "Existing leases.",
				func(s stats) float64 { return float64(s.Leases) }),
		}},
	}
}

// Describe implements prometheus.Collector.
func (c *leaseCollector) Describe(ch chan<- *prometheus.Desc) {
	c.table.Describe(ch)
	ch <- c.ttls
}

// Collect implements prometheus.Collector.
func (c *leaseCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.collect(ch)
	buckets, sum := map[float64]uint64{}, uint64(0)
	for i, n := range s.TTLs {
		sum += n
		if i < len(s.TTLs)-1 {
			buckets[float64(uint64(1)<<i)] = sum
		}
	}
	ch <- prometheus.MustNewConstHistogram(c.ttls, sum, float64(s.TTLSum), buckets)
}
