package health

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// finds reports whether a diagnosis has a finding of a check with a text.
func finds(d *Diagnosis, check, text string) bool {
	return slices.ContainsFunc(d.Findings,
		func(f Finding) bool {
			return f.Check == check &&
				strings.Contains(f.Member+": "+f.What, text)
		})
}

// TestAnswersWithoutHeader: a member may leave out any part of an answer.
func TestAnswersWithoutHeader(t *testing.T) {
	d := diagnose(t, func(e *Examination) {
		hold(e, 7, 7, 7)
		e.Readings[1].Status = &etcdserverpb.StatusResponse{Leader: 1}
	})
	if !finds(d, "leader", "belongs to another cluster") {
		t.Errorf("without a header: %+v", d.Findings)
	}
	d = diagnose(t, func(e *Examination) {
		hold(e, 7, 7, 7)
		e.Data[1].Later = &etcdserverpb.StatusResponse{}
		e.Readings[1].Status.RaftAppliedIndex = 1000
	})
	if !finds(d, "data", "b: is at revision 0 where a is at 900") {
		t.Errorf("a later answer without a header: %+v", d.Findings)
	}
}

// TestReportIsBounded: what a member says of itself makes a bounded number of findings, each of a
// bounded size.
func TestReportIsBounded(t *testing.T) {
	const many = 5000
	long := strings.Repeat("x", 1<<20)
	d := diagnose(t, func(e *Examination) {
		var s Report
		for i := range many {
			s.Failures = append(s.Failures,
				PeerFailure{Member: "3", Reason: WrongCluster, Cluster: fmt.Sprint(i), Text: long},
				PeerFailure{Member: "3", Text: long, Comes: true})
			s.Certificates = append(s.Certificates,
				Certificate{Listener: long, Use: fmt.Sprint(i), Subject: long,
					End: e.Now.Add(-time.Hour)})
			s.Recent = append(s.Recent,
				Window{Seconds: 1e300,
					Counters: map[string]float64{SlowApplies: 100, AppliedProposals: 100}})
		}
		s.Settings = map[string]string{"auth-token": long, "auto-compaction-mode": long,
			"max-request-bytes": long}
		s.Waits = &Wait{For: long, What: long, Name: long}
		s.Limit()
		e.Readings[1].Waits, e.Readings[1].Failures, e.Readings[1].Recent,
			e.Readings[1].Certificates = s.Waits, s.Failures, s.Recent, s.Certificates
		e.Flags[1] = s.Settings
		e.Readings[1].Waits = nil
		e.Readings[1].Status.Version = long
		for i := range many {
			e.Readings[0].Status.Errors = append(e.Readings[0].Status.Errors,
				fmt.Sprintf("memberID:%d alarm:NOSPACE", i+1))
		}
		e.Readings[1].Status.Errors = []string{"vigil: files of the data directory are gone: " +
			long, "vigil: there has been no leader for " + long}
		e.FindAlarms()
	})
	for _, f := range d.Findings {
		if len(f.What) > 4096 || len(f.Next) > 4096 || len(f.Member) > 4096 {
			t.Errorf("%s: a finding of %d and %d bytes", f.Check, len(f.What), len(f.Next))
		}
	}
	if len(d.Findings) > 200 || len(d.Unchecked) > 200 {
		t.Errorf("%d findings, %d gaps", len(d.Findings), len(d.Unchecked))
	}
}

// TestNoNumber: numbers that are none, or are not finite, are not known. JSON has neither.
func TestNoNumber(t *testing.T) {
	for _, n := range []string{"NaN", "+Inf", "-Inf"} {
		m := metrics(t, "etcd_mvcc_put_total "+n+
			"\n# TYPE etcd_server_apply_duration_seconds histogram\netcd_server_apply_duration_seconds_bucket{le=\"1\"} 3\netcd_server_apply_duration_seconds_sum "+n+"\netcd_server_apply_duration_seconds_count 3\n")
		if v, ok := m.Value(Puts); ok {
			t.Errorf("%s is the value %v", n, v)
		}
		h := m.Histogram(Apply)
		if mean, ok := h.Mean(); ok && (math.IsNaN(mean) || math.IsInf(mean, 0)) {
			t.Errorf("a sum of %s makes an average of %v", n, mean)
		}
		if _, err := json.Marshal(h); err != nil {
			t.Errorf("a sum of %s: %v", n, err)
		}
	}
}

// TestAlarmOfNobody: etcd raises CORRUPT for no member if it cannot tell which one is wrong.
func TestAlarmOfNobody(t *testing.T) {
	d := diagnose(t, func(e *Examination) {
		e.Readings[0].Status.Errors = []string{(&etcdserverpb.AlarmMember{Alarm: etcdserverpb.AlarmType_CORRUPT}).String()}
		e.FindAlarms()
	})
	if !finds(d, "alarms", ": alarm CORRUPT") || slices.Contains(d.Passed, "alarms") {
		t.Errorf("%+v, passed %v", d.Findings, d.Passed)
	}
}

// TestEqualSettings: settings that mean the same are equal.
func TestEqualSettings(t *testing.T) {
	for _, same := range []map[string][3]string{
		{"auto-compaction-retention": {"1", "1h", "60m0s"}},
		{"auto-compaction-retention": {"3600s", "60m", "1"},
			"auto-compaction-mode": {"periodic", "periodic", ""}},
		{"auto-compaction-retention": {"0", "0h", "0"},
			"auto-compaction-mode": {"periodic", "revision", "periodic"}},
		{"auto-compaction-retention": {"0", "0", "0"},
			"auto-compaction-mode": {"revision", "periodic", "periodic"}},
		{"auto-compaction-retention": {"1000", "1000", "01000"},
			"auto-compaction-mode": {"revision", "revision", "revision"}},
		{"pre-vote": {"", "true", "1"}},
		{"client-cert-auth": {"false", "F", "0"}},
		{"auth-token": {"jwt,pub-key=/a", "jwt,pub-key=/b", "jwt"}},
		{"auth-token": {"simple", "", "simple"}},
		{"max-request-bytes": {"1572864", "01572864", "1572864"}},
	} {
		d := diagnose(t, func(e *Examination) {
			for name, values := range same {
				for i, v := range values {
					e.Flags[i][name] = v
				}
			}
		})
		if finds(d, "settings", "different values") {
			t.Errorf("%v: %+v", same, d.Findings)
		}
	}
	for _, differ := range []map[string][3]string{
		{"auto-compaction-retention": {"1", "2h", "1h"}},
		{"auto-compaction-retention": {"1000", "1000", "1000"},
			"auto-compaction-mode": {"revision", "revision", "periodic"}},
		{"auto-compaction-retention": {"1000", "1000", "0"},
			"auto-compaction-mode": {"revision", "revision", "revision"}},
		{"pre-vote": {"", "true", "false"}},
		{"auth-token": {"jwt", "simple", "jwt"}},
	} {
		d := diagnose(t, func(e *Examination) {
			for name, values := range differ {
				for i, v := range values {
					e.Flags[i][name] = v
				}
			}
		})
		if !finds(d, "settings", "different values") {
			t.Errorf("%v is not found: %+v", differ, d.Findings)
		}
	}
	d := diagnose(t, func(e *Examination) {
		for i, v := range []int64{-1, -5, -1} { // no quota
			e.Readings[i].Status.DbSizeQuota, e.Flags[i]["quota-backend-bytes"] = v, fmt.Sprint(v)
		}
		e.Flags[0]["unsafe-no-fsync"], e.Flags[1]["pre-vote"] = "0", "1"
	})
	if len(d.Findings) > 0 {
		t.Errorf("%+v", d.Findings)
	}
}

// TestCompactionOff: a member without automatic compaction differs in that, and not in its mode
// too.
func TestCompactionOff(t *testing.T) {
	d := diagnose(t, func(e *Examination) {
		for i, v := range []string{"10", "10", "0"} {
			e.Flags[i]["auto-compaction-retention"],
				e.Flags[i]["auto-compaction-mode"] = v, "periodic"
		}
	})
	if len(d.Findings) != 1 ||
		!finds(d, "settings", "--auto-compaction-retention: a, b: 10; c: 0") {
		t.Errorf("%+v", d.Findings)
	}
}

// TestLooksAtNothing: a check that compares members has passed only if there were two to compare.
func TestLooksAtNothing(t *testing.T) {
	noMetrics := func(e *Examination) {
		for i := range e.Readings {
			e.Readings[i].Metrics, e.Readings[i].MetricsErr = nil, &refusal{"no"}
		}
	}
	for name, c := range map[string]struct {
		checks []string
		change func(e *Examination)
	}{
		"one of three answers": {[]string{"data", "versions", "clocks", "settings"},
			func(e *Examination) { dead(e, 1, 2) }},
		"one of three is asked": {[]string{"data", "versions", "clocks", "settings"},
			func(e *Examination) { only(e, 1) }},
		"one tells its time": {[]string{"clocks"},
			func(e *Examination) { e.Clocks[1], e.Clocks[2] = nil, nil }},
		"metrics cannot be read": {[]string{"archive", "versions", "certificates",
			"lag"}, noMetrics},
		"the list is not known": {[]string{"network"}, func(e *Examination) {
			e.Members = nil
			e.Readings[0].Metrics = metrics(t, "vigil_watch_largest_lag_revisions 0\n")
		}},
		"the quotas are not known": {[]string{"space"},
			func(e *Examination) { e.Readings[1].Status.DbSizeQuota = 0 }},
		"one, and no list of members": {[]string{"data", "clocks"},
			func(e *Examination) { only(e, 1); e.Members = nil }},
	} {
		d := diagnose(t, c.change)
		for _, check := range c.checks {
			if slices.Contains(d.Passed, check) {
				t.Errorf("%s: %s has passed", name, check)
			}
		}
	}
	alone := diagnose(t, func(e *Examination) { only(e, 1); e.Members = e.Members[:1] })
	for _, check := range []string{"data", "versions", "clocks", "settings", "network"} {
		if !slices.Contains(alone.Passed, check) {
			t.Errorf("a cluster of one: %s has not passed: %+v", check, alone.Unchecked)
		}
	}
}

// TestForeignMajority: members of another cluster have no say in who leads this one.
func TestForeignMajority(t *testing.T) {
	d := diagnose(t, func(e *Examination) {
		for _, i := range []int{1, 2} {
			st := e.Readings[i].Status
			st.Header.ClusterId, st.Header.MemberId, st.Leader = 5, uint64(70+i), 71
			e.Readings[i].Advertised = uint64(i) + 1
		}
	})
	if finds(d, "leader", "follows another leader") || d.Leader != "a" {
		t.Errorf("leader %s: %+v", d.Leader, d.Findings)
	}
}

// TestDowngradeOnce: what is so of the whole cluster is one finding.
func TestDowngradeOnce(t *testing.T) {
	d := diagnose(t, func(e *Examination) {
		for i := range e.Readings {
			e.Readings[i].Status.DowngradeInfo = &etcdserverpb.DowngradeInfo{Enabled: true,
				TargetVersion: "3.6.0"}
		}
	})
	if len(d.Findings) != 1 || d.Findings[0].Member != "" {
		t.Errorf("%+v", d.Findings)
	}
}

// TestHistoryOfRemoved: with a member that is removed, its part of a sum goes. What is left is not
// all that was ever counted.
func TestHistoryOfRemoved(t *testing.T) {
	trips := func(fast, slow, other int) Metrics {
		return metrics(t, fmt.Sprintf(`# TYPE etcd_network_peer_round_trip_time_seconds histogram
etcd_network_peer_round_trip_time_seconds_bucket{le="0.001"} %d
etcd_network_peer_round_trip_time_seconds_bucket{le="1"} %d
etcd_network_peer_round_trip_time_seconds_count %d
`, fast+other, fast+slow+other, fast+slow+other))
	}
	start := time.Unix(1e9, 0)
	h := NewHistory(start)
	for i := range 90 {
		h.Record(start.Add(time.Duration(i)*RecordInterval), trips(0, 1000, 200))
	}
	// The other one was removed, and a member is back that was slow once.
	for _, w := range h.Recent(start.Add(91*RecordInterval), trips(60, 1190, 0)) {
		if n := w.Histograms[PeerRoundTrip].Count; w.Seconds < 4000 && n > 300 {
			t.Errorf("%d round trips in %vs: all since the start", n, w.Seconds)
		}
	}
}

// FuzzReport: whatever a member sends of itself, the checks end, with findings that can be sent on.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"recent":[{"seconds":-1,"histograms":{"etcd_disk_wal_fsync_duration_seconds":{"bounds":[1,0],"up_to":[9,3],"count":2000,"sum":-3}},"counters":null},{}],"failures":[{"member":"3","reason":"wrong member"}],"certificates":[{"listener":"peer","use":"server","end":"0001-01-01T00:00:00Z"}]}`), []byte("\x0a\x02\x08\x01"), "vigil_disk_full NaN\n")
	f.Add([]byte(`{"recent":[{"seconds":1e308,"histograms":{"etcd_network_peer_round_trip_time_seconds":{"bounds":[1e308],"up_to":[18446744073709551615],"count":18446744073709551615}}}]}`), []byte(""), "# TYPE etcd_disk_wal_fsync_duration_seconds histogram\netcd_disk_wal_fsync_duration_seconds_bucket{le=\"NaN\"} 3\n")
	f.Fuzz(func(t *testing.T, report, status []byte, text string) {
		var s Report
		if json.Unmarshal(report, &s) != nil {
			return
		}
		st := new(etcdserverpb.StatusResponse)
		if proto.Unmarshal(status, st) != nil {
			return
		}
		d := diagnose(t, func(e *Examination) {
			hold(e, 7, 7, 7)
			s.Limit()
			e.Readings[1].Waits, e.Readings[1].Failures, e.Readings[1].Recent,
				e.Readings[1].Certificates = s.Waits, s.Failures, s.Recent, s.Certificates
			e.Flags[1], e.Readings[1].Status, e.Data[1].Later = s.Settings, st, st
			if m, err := ParseMetrics(strings.NewReader(text)); err == nil {
				e.Readings[1].Metrics = m
			}
			e.FindAlarms()
		})
		if len(d.Findings) > 200 {
			t.Errorf("%d findings", len(d.Findings))
		}
		if _, err := json.Marshal(d); err != nil {
			t.Error(err)
		}
	})
}

// TestManyClients: of many clients many writes wait at any time, which is no harm while each waits
// for a short time.
func TestManyClients(t *testing.T) {
	for rate, found := range map[int]bool{0: true, 100: true, 4000: false} {
		d := diagnose(t, func(e *Examination) {
			x := &e.Readings[1]
			x.Metrics = metrics(t,
				healthy+fmt.Sprintf("etcd_server_proposals_pending 1000\netcd_server_proposals_applied_total 40\nvigil_requests_applied_total %d\n", 60*rate))
			x.Recent = []Window{Between(nil, x.Metrics, time.Minute)}
		})
		if finds(d, "network", "1000 writes wait for agreement") != found {
			t.Errorf("%d writes a second: %+v", rate, d.Findings)
		}
	}
}

// TestLoadBalancer: metrics of another member say nothing of the one whose status was read.
func TestLoadBalancer(t *testing.T) {
	for id, other := range map[string]bool{"2": false, "3": true, "x": false} {
		d := diagnose(t, func(e *Examination) {
			e.Readings[1].Metrics = metrics(t,
				healthy+"vigil_damage_found_total 1\netcd_server_id{server_id=\""+id+"\"} 1\n")
			e.Readings[1].CheckPages()
		})
		if finds(d, "damage", "b: damaged data") == other ||
			finds(d, "reachable", "those of member 3 were read") != other {
			t.Errorf("%s: %+v", id, d.Findings)
		}
	}
}
