package server

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/member/replica"
)

var knownPeersDesc = prometheus.NewDesc("etcd_network_known_peers", "1 for each member of the cluster, this one among them.",
	[]string{"Local", "Remote"}, nil)

// knownPeers exports which members there are.
type knownPeers struct{ replica *replica.Replica }

// Describe implements prometheus.Collector.
func (c knownPeers) Describe(ch chan<- *prometheus.Desc) { ch <- knownPeersDesc }

// Collect implements prometheus.Collector.
func (c knownPeers) Collect(ch chan<- prometheus.Metric) {
	// From this member's state: it waits for nobody, and fails only when the member stops.
	members, err := c.replica.Members(context.Background(), false)
	if err != nil {
		return
	}
	local := strconv.FormatUint(c.replica.Header().MemberID, 16)
	for _, m := range members {
		ch <- prometheus.MustNewConstMetric(knownPeersDesc, prometheus.GaugeValue, 1, local, strconv.FormatUint(m.ID, 16))
	}
}

// features exports which of etcd's feature gates are on, by what this program does: leases are
// replicated with what they have left, and keep-alives are fast, whatever the gates say.
func features(c *Config) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "etcd_server_feature_enabled",
		Help: "Whether this program does what the feature gate of etcd stands for."}, []string{"name", "stage"})
	for _, f := range []struct {
		name, stage string
		on          bool
	}{
		{"AllAlpha", "ALPHA", false}, {"AllBeta", "BETA", false},
		{"CompactHashCheck", "ALPHA", c.CompactHashCheckInterval > 0},
		{"FastLeaseKeepAlive", "BETA", true},
		{"InitialCorruptCheck", "ALPHA", !c.NoInitialCorruptCheck},
		{"LeaseCheckpoint", "ALPHA", true}, {"LeaseCheckpointPersist", "ALPHA", true},
		{"PriorityRequest", "ALPHA", false}, {"SetMemberLocalAddr", "ALPHA", c.SetMemberLocalAddr},
		{"StopGRPCServiceOnDefrag", "ALPHA", false}, {"TxnModeWriteWithSharedBuffer", "BETA", true},
	} {
		g.WithLabelValues(f.name, f.stage).Set(oneIf(f.on))
	}
	return g
}
