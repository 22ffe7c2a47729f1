package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/member/replica"
)

var knownPeers = newDesc("etcd_network_known_peers",
	"1 for each member of the cluster, including this member.", "Local", "Remote")

var clusterMembers = newDesc("vigil_cluster_members",
	"Members of the cluster that this member knows, including itself.", "role")

// membersCollector exports the IDs and the numbers of the members of the cluster, as far as this
// member knows them.
type membersCollector struct{ replica *replica.Replica }

// Describe implements prometheus.Collector.
func (c membersCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- knownPeers
	ch <- clusterMembers
}

// Collect implements prometheus.Collector.
func (c membersCollector) Collect(ch chan<- prometheus.Metric) {
	local := strconv.FormatUint(c.replica.Header().MemberID, 16)
	voters, learners := 0, 0
	for _, m := range c.replica.Membership().Members() {
		if m.Learner {
			learners++
		} else {
			voters++
		}
		ch <- prometheus.MustNewConstMetric(knownPeers, prometheus.GaugeValue, 1, local,
			strconv.FormatUint(m.ID, 16))
	}
	ch <- prometheus.MustNewConstMetric(clusterMembers, prometheus.GaugeValue,
		float64(voters), "voter")
	ch <- prometheus.MustNewConstMetric(clusterMembers, prometheus.GaugeValue,
		float64(learners), "learner")
}

// Features are the etcd feature gates that Vigil can switch.
type Features struct{ CompactHashCheck, InitialCorruptCheck, SetMemberLocalAddr bool }

// collector exports the state of etcd's feature gates by what this program does: remaining TTLs of
// leases are always replicated, and keep-alives are always fast, independently of their gates.
func (f Features) collector() prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "etcd_server_feature_enabled",
		Help: "Whether this program does what etcd does with this feature gate enabled."},
		[]string{"name", "stage"})
	for _, gate := range []struct {
		name, stage string
		on          bool
	}{
		{"AllAlpha", "ALPHA", false}, {"AllBeta", "BETA", false},
		{"CompactHashCheck", "ALPHA", f.CompactHashCheck},
		{"FastLeaseKeepAlive", "BETA", true},
		{"InitialCorruptCheck", "ALPHA", f.InitialCorruptCheck},
		{"LeaseCheckpoint", "ALPHA", true}, {"LeaseCheckpointPersist", "ALPHA", true},
		{"PriorityRequest", "ALPHA", false}, {"SetMemberLocalAddr", "ALPHA", f.SetMemberLocalAddr},
		{"StopGRPCServiceOnDefrag", "ALPHA", false}, {"TxnModeWriteWithSharedBuffer", "BETA", true},
	} {
		g.WithLabelValues(gate.name, gate.stage).Set(boolValue(gate.on))
	}
	return g
}
