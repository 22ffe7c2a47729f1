package diff

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func init() { methods["etcdserverpb.DowngradeRequest"] = "etcdserverpb.Maintenance/Downgrade" }

// TestDowngrade: what a downgrade needs, how it shows while it is under way, and how it ends.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	const validate, enable, cancel = pb.DowngradeRequest_VALIDATE, pb.DowngradeRequest_ENABLE,
		pb.DowngradeRequest_CANCEL
	do := func(action pb.DowngradeRequest_DowngradeAction, version string) {
		p.Do(&pb.DowngradeRequest{Action: action, Version: version})
	}
	for _, version := range []string{"", "3", "x", "v3.6", "3.6", "3.6.0", "3.6.7",
		"3.6.0-rc.1+meta", "3.6.0-", "3.6.0-b!d", "3.6-rc", "3.5", "3.7", "3.8", "2.6", "4.6",
		"3.6.0.0", "03.06", "3.99999999999", "3.99999999999999999999", "-3.6.0", " 3.6",
		strings.Repeat("9", 1000)} {
		do(validate, version)
	}
	do(cancel, "")
	do(7, "3.6")
	p.Do(&pb.StatusRequest{})
	do(enable, "3.5")
	do(enable, "nonsense")
	p.HTTP(post("/v3/maintenance/downgrade", `{"action":"VALIDATE","version":"3.6"}`))
	p.HTTP(post("/v3/maintenance/downgrade", `{"action":"ENABLE","version":"3.8"}`))
	// What comes next depends on the time between two looks of the leader, unless it is before the
	// first.
	do(enable, "3.6")
	p.storage("3.6.0")
	p.Do(&pb.StatusRequest{})
	for _, version := range []string{"3.5", "3.6", "3.7", "x"} {
		do(validate, version)
		do(enable, version)
	}
	show := Request{Path: "/version"}
	p.HTTP(show)
	for _, s := range []*Side{p.Etcd, p.Subject} {
		a, err := s.Ask(t.Context(), s.Server.Addr(), Request{Path: "/metrics"})
		if err != nil || !strings.Contains(a.Body,
			`etcd_cluster_version{cluster_version="3.6"} 1`) {
			t.Errorf("%s: the metric of the cluster's version is not 3.6: %v", s.Server.Addr(), err)
		}
	}
	p.Restart()
	p.Do(&pb.StatusRequest{})
	do(cancel, "whatever")
	p.storage("3.7.0")
	p.Do(&pb.StatusRequest{})
	p.HTTP(show)
	do(cancel, "")
	do(validate, "3.6")
	p.Finish(t, &tally)
}
