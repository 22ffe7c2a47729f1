package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/member/replica"
)

// leaseCollector exports what the replica counts about leases.
type leaseCollector struct {
	replica                                          *replica.Replica
	granted, revoked, renewed, expired, ttls, leases *prometheus.Desc
}

func newLeaseCollector(r *replica.Replica) *leaseCollector {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &leaseCollector{
		replica: r,
		granted: desc("etcd_debugging_lease_granted_total", "Leases granted."),
		revoked: desc("etcd_debugging_lease_revoked_total", "Leases revoked, the expired ones among them."),
		renewed: desc("etcd_debugging_lease_renewed_total", "Keep-alives that this member has granted as the leader."),
		expired: desc("etcd_debugging_server_lease_expired_total", "Leases that this member has let expire as the leader."),
		ttls:    desc("etcd_debugging_lease_ttl_total", "Times to live of the leases granted, in seconds."),
		leases:  desc("vigil_leases", "Leases that there are."),
	}
}

// Describe implements prometheus.Collector.
func (c *leaseCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.granted, c.revoked, c.renewed, c.expired, c.ttls, c.leases} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *leaseCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.replica.LeaseStats()
	for _, m := range []struct {
		desc  *prometheus.Desc
		value uint64
	}{{c.granted, s.Granted}, {c.revoked, s.Revoked}, {c.renewed, s.Renewed}, {c.expired, s.Expired}} {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(m.value))
	}
	ch <- prometheus.MustNewConstMetric(c.leases, prometheus.GaugeValue, float64(s.Leases))
	buckets, sum := map[float64]uint64{}, uint64(0)
	for i, n := range s.TTLs {
		sum += n
		if i < len(s.TTLs)-1 {
			buckets[float64(uint64(1)<<i)] = sum
		}
	}
	ch <- prometheus.MustNewConstHistogram(c.ttls, sum, float64(s.TTLSum), buckets)
}
