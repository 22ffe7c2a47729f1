package peer

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"go.etcd.io/raft/v3/raftpb"
)

// Every figure is exported under etcd's name where etcd has one, with its labels.
func TestCollector(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	keeping(b)
	a.start(t)
	b.start(t)
	up(t, a, b)
	a.send(msg(raftpb.MsgHeartbeat, a.id, b.id, 1))
	until(t, "it arrived", func() bool { return len(b.sink.all()) == 1 })
	until(t, "a round trip", func() bool { return a.about(b.id).RoundTrip > 0 })
	if err := a.SendBulk(t.Context(), b.id, nil, strings.NewReader("12345")); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(NewCollector(a.Transport)); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		seen[f.GetName()] = strings.Join(labels, ",")
		if f.GetName() == "etcd_network_peer_round_trip_time_seconds" {
			want := prometheus.ExponentialBuckets(0.0001, 2, 16) // etcd's
			for i, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
				if i >= len(want) || b.GetUpperBound() != want[i] {
					t.Errorf("bucket %d ends at %v, etcd's buckets end at %v", i,
						b.GetUpperBound(), want)
				}
			}
		}
	}
	for name, labels := range map[string]string{
		"etcd_network_active_peers":                            "Local=a,Remote=b",
		"etcd_network_disconnected_peers_total":                "Local=a,Remote=b",
		"etcd_network_peer_sent_bytes_total":                   "To=b",
		"etcd_network_peer_received_bytes_total":               "From=b",
		"etcd_network_peer_sent_failures_total":                "To=b",
		"etcd_network_peer_received_failures_total":            "From=b",
		"etcd_network_peer_round_trip_time_seconds":            "To=b",
		"etcd_network_snapshot_send_success":                   "To=b",
		"etcd_network_snapshot_send_failures":                  "To=b",
		"etcd_network_snapshot_send_inflights_total":           "To=b",
		"etcd_network_snapshot_send_total_duration_seconds":    "To=b",
		"etcd_network_snapshot_receive_success":                "From=b",
		"etcd_network_snapshot_receive_failures":               "From=b",
		"etcd_network_snapshot_receive_inflights_total":        "From=b",
		"etcd_network_snapshot_receive_total_duration_seconds": "From=b",
		"vigil_peer_sent_messages_total":                       "To=b",
		"vigil_peer_dropped_messages_total":                    "To=b",
		"vigil_peer_queued_bytes":                              "To=b",
	} {
		if got, ok := seen[name]; !ok || got != labels {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
	for _, f := range families {
		if f.GetName() == "vigil_peer_bulk_send_bytes_total" &&
			f.GetMetric()[0].GetCounter().GetValue() != 5 {
			t.Errorf("%v", f)
		}
	}
}
