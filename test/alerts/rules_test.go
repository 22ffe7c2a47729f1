package alerts

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// start is the time of the first sample of series that are written by hand: 1800000000 in seconds
// since 1970.
var start = time.Unix(1_800_000_000, 0)

// healthy is the series of one member without any problem. In all series here {a} stands for the
// labels of member a, and SPAN for a value that stays until the end.
const healthy = `
	up{a} 1SPAN
	etcd_server_has_leader{a} 1SPAN
	etcd_server_is_learner{a} 0SPAN
	vigil_cluster_members{a, role="voter"} 3SPAN
	vigil_cluster_members{a, role="learner"} 0SPAN
	vigil_build_info{a, version="0.1.0", revision="r"} 1SPAN
	vigil_clock_seconds{a} 1800000000+60SPAN
	process_start_time_seconds{a} 1700000000SPAN
	etcd_server_leader_changes_seen_total{a} 1SPAN
	etcd_server_proposals_committed_total{a} 1000+100SPAN
	etcd_server_proposals_applied_total{a} 1000+100SPAN
	grpc_server_handled_total{a, grpc_method="Put", grpc_code="OK"} 0+1000SPAN
	grpc_server_handled_total{a, grpc_method="Put", grpc_code="Unavailable"} 0+1SPAN
	etcd_server_request_duration_seconds_bucket{a, type="Put", success="true", le="0.016"} 0+1000SPAN
	etcd_server_request_duration_seconds_bucket{a, type="Put", success="true", le="+Inf"} 0+1000SPAN
	etcd_disk_wal_fsync_duration_seconds_bucket{a, le="0.008"} 0+1000SPAN
	etcd_disk_wal_fsync_duration_seconds_bucket{a, le="+Inf"} 0+1000SPAN
	etcd_network_peer_round_trip_time_seconds_bucket{a, To="2", le="0.001"} 0+60SPAN
	etcd_network_peer_round_trip_time_seconds_bucket{a, To="2", le="+Inf"} 0+60SPAN
	etcd_network_active_peers{a, Local="1", Remote="2"} 1SPAN
	etcd_server_slow_apply_total{a} 5SPAN
	etcd_server_quota_backend_bytes{a} 1000SPAN
	etcd_mvcc_db_total_size_in_use_in_bytes{a} 500SPAN
	vigil_disk_full{a} 0SPAN
	vigil_apply_waits_for_space{a} 0SPAN
	vigil_raft_log_waits_for_space{a} 0SPAN
	vigil_data_files_gone{a} 0SPAN
	vigil_member_stalled{a} 0SPAN
	vigil_member_serving{a} 1SPAN
	vigil_history_rewrite_failures_total{a} 1SPAN
	vigil_damage_found_total{a} 0SPAN
	vigil_consistency_differences_total{a} 0SPAN
	vigil_snapshot_send_failures_total{a} 2SPAN
	vigil_watch_largest_lag_revisions{a} 3SPAN
	vigil_watch_stalled_watchers{a} 0SPAN
	vigil_watch_compacted_total{a} 7SPAN
	vigil_range_waiting{a} 0SPAN
	etcd_debugging_mvcc_current_revision{a} 2000000+100SPAN
	etcd_debugging_mvcc_compact_revision{a} 1900000+100SPAN
	vigil_certificate_expiry_timestamp_seconds{a, listener="client", use="server"} 1810000000SPAN
	vigil_certificate_expiry_timestamp_seconds{a, listener="peer", use="server"} 1810000000SPAN
	os_fd_used{a} 100SPAN
	os_fd_limit{a} 1024SPAN
	etcd_server_is_leader{a} 1SPAN
	vigil_archive_lag_seconds{a} 1SPAN
	vigil_archive_failing_seconds{a} 0SPAN
	vigil_archive_refused{a} 0SPAN
	vigil_archive_gaps_total{a} 1SPAN
`

// scene is what happens to three healthy members: lines that replace their series or add others,
// and "down MEMBER MINUTE" and "vanish MEMBER MINUTE" for members that cannot be scraped any more,
// and that are no targets any more.
type scene struct {
	lines   string
	minutes int // 40 if not given
}

// cases has for each alert a scene in which it fires, alone or with others, and one in which it
// does not.
var cases = []struct {
	alert        string
	fires, quiet scene
	also         []string
}{
	{"VigilAbsent", scene{lines: "vanish a 20\nvanish b 20\nvanish c 20"},
		scene{lines: "down a 20\ndown b 20\ndown c 20"}, []string{"VigilNoQuorum"}},
	{"VigilAllDown", scene{lines: "down a 20\ndown b 20\ndown c 20"},
		scene{lines: "down a 20\ndown b 20"}, []string{"VigilMemberDown"}},
	{"VigilNoQuorum", scene{lines: "down a 20\ndown b 20"}, scene{lines: "down a 20"},
		[]string{"VigilMemberDown"}},
	{"VigilQuorumAtRisk", scene{lines: "down c 20"},
		scene{lines: "down a 20\ndown b 20\ndown c 20"}, []string{"VigilMemberDown"}},
	{"VigilMemberDown", scene{lines: "down c 20"}, scene{lines: "down c 40"},
		[]string{"VigilQuorumAtRisk"}},
	{"VigilMemberWaits", scene{lines: "vigil_member_serving{c} 1x20 0SPAN"},
		scene{lines: "vigil_member_serving{c} 1x20 0 1SPAN"}, []string{"VigilQuorumAtRisk"}},
	{"VigilMemberNotScraped", scene{lines: "vanish c 20"}, scene{lines: "down c 20"},
		[]string{"VigilQuorumAtRisk"}},
	{"VigilRestarts", scene{lines: "process_start_time_seconds{a} 1700000000x20 1800001300 1800001400 1800001500 1800001600x40"},
		scene{lines: "process_start_time_seconds{a} 1700000000x20 1800001300 1800001400 1800001500x40"}, nil},
	{"VigilNoLeader", scene{lines: "etcd_server_has_leader{b} 1x20 0SPAN"},
		scene{lines: "etcd_server_has_leader{b} 1x20 0 1SPAN"}, nil},
	{"VigilLeaderChanges", scene{lines: "etcd_server_leader_changes_seen_total{a} 1x20 2+1SPAN"},
		scene{lines: "etcd_server_leader_changes_seen_total{a} 1x20 2 3 4SPAN"}, nil},
	{"VigilMemberStalled", scene{lines: "vigil_member_stalled{b} 0x20 1SPAN"},
		scene{lines: "vigil_member_stalled{b} 0x20 1 0SPAN"}, nil},
	{"VigilRequestsFail",
		scene{lines: `grpc_server_handled_total{a, grpc_method="Put", grpc_code="Unavailable"} 0+100SPAN`},
		scene{lines: `grpc_server_handled_total{a, grpc_method="Put", grpc_code="NotFound"} 0+100SPAN`}, nil},
	{"VigilSlowRequests", scene{lines: `etcd_server_request_duration_seconds_bucket{a, type="Range", success="true", le="0.512"} 0+10SPAN
		etcd_server_request_duration_seconds_bucket{a, type="Range", success="true", le="1.024"} 0+1000SPAN
		etcd_server_request_duration_seconds_bucket{a, type="Range", success="true", le="+Inf"} 0+1000SPAN`},
		scene{lines: `etcd_server_request_duration_seconds_bucket{a, type="Compaction", success="true", le="0.512"} 0+10SPAN
		etcd_server_request_duration_seconds_bucket{a, type="Compaction", success="true", le="1.024"} 0+1000SPAN
		etcd_server_request_duration_seconds_bucket{a, type="Compaction", success="true", le="+Inf"} 0+1000SPAN`}, nil},
	{"VigilSlowSync", scene{lines: `etcd_disk_wal_fsync_duration_seconds_bucket{a, le="0.008"} 0+900SPAN
		etcd_disk_wal_fsync_duration_seconds_bucket{a, le="0.256"} 0+1000SPAN`},
		scene{lines: `etcd_disk_wal_fsync_duration_seconds_bucket{a, le="0.008"} 0+900SPAN
		etcd_disk_wal_fsync_duration_seconds_bucket{a, le="0.064"} 0+1000SPAN`}, nil},
	{"VigilSlowApply", scene{lines: "etcd_server_slow_apply_total{a} 0+30SPAN"},
		scene{lines: "etcd_server_slow_apply_total{a} 0+10SPAN"}, nil},
	{"VigilApplyLags", scene{lines: "etcd_server_proposals_applied_total{b} 1000+100x10 1100+60SPAN"}, scene{lines: "etcd_server_proposals_applied_total{b} 500+100SPAN"}, []string{"VigilMemberLags"}},
	{"VigilMemberLags", scene{lines: "etcd_server_proposals_applied_total{b} 1000+100x10 1800+100SPAN\netcd_server_proposals_committed_total{b} 1000+100x10 1800+100SPAN"},
		scene{lines: "etcd_server_proposals_applied_total{b} 900+100SPAN\netcd_server_proposals_committed_total{b} 900+100SPAN"}, nil},
	{"VigilLearnerLags",
		scene{lines: "etcd_server_is_learner{d} 1SPAN\nup{d} 1SPAN\netcd_server_proposals_applied_total{d} 0+50SPAN\n" + fourth},
		scene{lines: "etcd_server_is_learner{d} 1SPAN\nup{d} 1SPAN\netcd_server_proposals_applied_total{d} 950+100SPAN\n" + fourth}, nil},
	{"VigilPeerUnreachable",
		scene{lines: `etcd_network_active_peers{a, Local="1", Remote="3"} 1x20 0SPAN`},
		scene{lines: `etcd_network_active_peers{a, Local="1", Remote="3"} 1x20 0x3 1SPAN`}, nil},
	{"VigilPeerSlow", scene{lines: `etcd_network_peer_round_trip_time_seconds_bucket{a, To="2", le="0.001"} 0+10SPAN
		etcd_network_peer_round_trip_time_seconds_bucket{a, To="2", le="0.256"} 0+60SPAN`},
		scene{lines: `etcd_network_peer_round_trip_time_seconds_bucket{a, To="2", le="0.001"} 0+10SPAN
		etcd_network_peer_round_trip_time_seconds_bucket{a, To="2", le="0.064"} 0+60SPAN`}, nil},
	{"VigilAlarm", scene{lines: `etcd_debugging_server_alarms{a, server_id="8e9e05c52164694d", alarm_type="CORRUPT"} 1SPAN`},
		scene{lines: `etcd_debugging_server_alarms{a, server_id="8e9e05c52164694d", alarm_type="NOSPACE"} 1x20 stale`}, nil},
	{"VigilQuotaNear", scene{lines: "etcd_mvcc_db_total_size_in_use_in_bytes{a} 850SPAN"},
		scene{lines: "etcd_mvcc_db_total_size_in_use_in_bytes{a} 790SPAN"}, nil},
	{"VigilQuotaAlmostUsed", scene{lines: "etcd_mvcc_db_total_size_in_use_in_bytes{a} 960SPAN"},
		scene{lines: "etcd_mvcc_db_total_size_in_use_in_bytes{a} 960SPAN\netcd_server_quota_backend_bytes{a} 0SPAN"}, nil},
	{"VigilDiskFull", scene{lines: "vigil_disk_full{a} 0x39 1SPAN"},
		scene{lines: "vigil_disk_full{a} 1x20 0SPAN"}, nil},
	{"VigilDiskFullEntriesWait", scene{lines: "vigil_apply_waits_for_space{a} 0x30 1SPAN"},
		scene{lines: "vigil_apply_waits_for_space{a} 1x20 0SPAN"}, nil},
	{"VigilDataFilesGone", scene{lines: "vigil_data_files_gone{a} 0x39 1SPAN"},
		scene{lines: "vigil_data_files_gone{a} 1x20 0SPAN"}, nil},
	{"VigilReclaimFails", scene{lines: "vigil_history_rewrite_failures_total{a} 0+1SPAN"},
		scene{lines: "vigil_history_rewrite_failures_total{a} 0x30 1 2SPAN"}, nil},
	{"VigilDamage", scene{lines: "vigil_damage_found_total{a} 0x30 1SPAN"},
		scene{lines: "vigil_damage_found_total{a} 0x10 1SPAN", minutes: 90}, nil},
	{"VigilMembersDiffer", scene{lines: "vigil_consistency_differences_total{a} 0x30 1SPAN"},
		scene{lines: "vigil_consistency_differences_total{a} 0x10 1SPAN", minutes: 90}, nil},
	{"VigilSnapshotsFail", scene{lines: "vigil_snapshot_send_failures_total{a} 0x20 0+1SPAN"},
		scene{lines: "vigil_snapshot_send_failures_total{a} 0x30 1 2SPAN"}, nil},
	{"VigilWatchersLag", scene{lines: "vigil_watch_largest_lag_revisions{a} 10001SPAN"},
		scene{lines: "vigil_watch_largest_lag_revisions{a} 20000x30 3SPAN"}, nil},
	{"VigilWatchersStalled", scene{lines: "vigil_watch_stalled_watchers{a} 0x20 2SPAN"},
		scene{lines: "vigil_watch_stalled_watchers{a} 0x30 2SPAN"}, nil},
	{"VigilWatchersCompacted", scene{lines: "vigil_watch_compacted_total{a} 7x30 8SPAN"},
		scene{lines: "vigil_watch_compacted_total{a} 7x10 8SPAN"}, nil},
	{"VigilNoCompaction",
		scene{lines: "etcd_debugging_mvcc_compact_revision{a} 500000SPAN", minutes: 70},
		scene{lines: "etcd_debugging_mvcc_compact_revision{a} 1100000SPAN", minutes: 70}, nil},
	{"VigilReadsWait", scene{lines: "vigil_range_waiting{a} 4SPAN"},
		scene{lines: "vigil_range_waiting{a} 4x35 0SPAN"}, nil},
	{"VigilArchiveLags", scene{lines: "vigil_archive_lag_seconds{a} 1x20 30+60SPAN"},
		scene{lines: "vigil_archive_lag_seconds{a} 1x20 30+60SPAN\netcd_server_is_leader{a} 0SPAN"},
		nil},
	{"VigilArchiveFails", scene{lines: "vigil_archive_failing_seconds{a} 0x20 60+60SPAN"},
		scene{lines: "vigil_archive_failing_seconds{a} 0x20 60 120 180 240 0SPAN"}, nil},
	{"VigilArchiveRefused", scene{lines: "vigil_archive_refused{a} 0x20 1SPAN"},
		scene{lines: "vigil_archive_refused{a} 1x20 0SPAN"}, nil},
	{"VigilArchiveGap", scene{lines: "vigil_archive_gaps_total{a} 1x30 2SPAN"},
		scene{lines: "vigil_archive_gaps_total{a} 1x10 2SPAN", minutes: 90}, nil},
	{"VigilCertificateExpires",
		scene{lines: `vigil_certificate_expiry_timestamp_seconds{a, listener="peer", use="server"} 1801700000SPAN`},
		scene{lines: `vigil_certificate_expiry_timestamp_seconds{a, listener="peer", use="server"} 1801700000x30 1810000000SPAN`}, nil},
	{"VigilCertificateExpiresSoon",
		scene{lines: `vigil_certificate_expiry_timestamp_seconds{a, listener="client", use="server"} 1800500000SPAN`},
		scene{lines: `vigil_certificate_expiry_timestamp_seconds{a, listener="client", use="server"} 1801700000SPAN`}, nil},
	{"VigilCertificateExpired",
		scene{lines: `vigil_certificate_expiry_timestamp_seconds{a, listener="client", use="server"} 1800002390SPAN`},
		scene{lines: `vigil_certificate_expiry_timestamp_seconds{a, listener="client", use="server"} 1800002410SPAN`}, nil},
	{"VigilClockSkew", scene{lines: "vigil_clock_seconds{a} 1799999997+60SPAN"},
		scene{lines: "vigil_clock_seconds{a} 1800000001+60SPAN"}, nil},
	{"VigilVersionsDiffer", scene{lines: newVersion, minutes: 145},
		scene{lines: newVersion, minutes: 125}, nil},
	{"VigilFileDescriptors", scene{lines: "os_fd_used{a} 900SPAN"},
		scene{lines: "os_fd_used{a} 800SPAN"}, nil},
}

const (
	// fourth makes a learner known to the other members.
	fourth = "vigil_cluster_members{a, role=\"learner\"} 1SPAN\nvigil_cluster_members{b, role=\"learner\"} 1SPAN\nvigil_cluster_members{c, role=\"learner\"} 1SPAN"
	// newVersion upgrades one member after ten minutes.
	newVersion = "vigil_build_info{a, version=\"0.1.0\", revision=\"r\"} 1x10 stale\nvigil_build_info{a, version=\"0.2.0\", revision=\"s\"} _x11 1SPAN"
)

var (
	span   = regexp.MustCompile(`SPAN$`)
	member = regexp.MustCompile(`\{([a-d])\b`)
	event  = regexp.MustCompile(`^(down|vanish) (\w) (\d+)$`)
)

// fill writes a line out.
func fill(line string, minutes int) string {
	return member.ReplaceAllString(span.ReplaceAllString(strings.TrimSpace(line),
		"x"+strconv.Itoa(minutes)), `{job="vigil", instance="$1"`)
}

// play returns the alerts that fire at the end of a scene.
func play(t *testing.T, s scene) (*prometheus, []string) {
	t.Helper()
	p := newPrometheus(t)
	minutes := s.minutes
	if minutes == 0 {
		minutes = 40
	}
	series, gone := map[string]string{}, map[string]scene{}
	add := func(text string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			if m := event.FindStringSubmatch(line); m != nil {
				n, _ := strconv.Atoi(m[3])
				gone[m[2]] = scene{m[1], n}
				continue
			}
			line = fill(line, minutes)
			name, values, _ := strings.Cut(line, "} ")
			series[name+"}"] = values
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		add(strings.ReplaceAll(healthy, "{a", "{"+name))
	}
	add(s.lines)
	for name, values := range series {
		p.load(name+" "+values, start, step)
	}
	for _, s := range p.memory.all() {
		s.Floats = s.Floats[:min(len(s.Floats), minutes+1)] // lines may have more
		g, ok := gone[s.Metric.Get("instance")]
		if !ok || len(s.Floats) <= g.minutes {
			continue
		}
		if s.Metric.Get("__name__") == "up" && g.lines == "down" {
			for i := range s.Floats[g.minutes:] {
				s.Floats[g.minutes+i].F = 0
			}
			continue
		}
		s.Floats = s.Floats[:g.minutes+1]
		s.Floats[g.minutes].F = stale
	}
	p.evaluate(start, start.Add(time.Duration(minutes)*step))
	return p, p.names(false)
}

// TestHealthy: three members without problems raise nothing.
func TestHealthy(t *testing.T) {
	if _, got := play(t, scene{minutes: 180}); len(got) > 0 {
		t.Error(got)
	}
}

// TestAlerts: each alert fires when it must, and only then.
func TestAlerts(t *testing.T) {
	tested := map[string]bool{}
	for _, c := range cases {
		tested[c.alert] = true
		t.Run(c.alert, func(t *testing.T) {
			p, got := play(t, c.fires)
			want := append([]string{c.alert}, c.also...)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%q fire, want %q", got, want)
			}
			for _, a := range p.active {
				for name, text := range a.annotations {
					if text == "" || strings.Contains(text, "{{") ||
						strings.Contains(text, "<no value>") {
						t.Errorf("%s: %s: %q", a.name, name, text)
					}
				}
			}
			if _, got := play(t, c.quiet); slices.Contains(got, c.alert) {
				t.Errorf("%q fire in the scene that does not need it", got)
			}
		})
	}
	for _, r := range loadRules(t) {
		if r.Alert != "" && !tested[r.Alert] {
			t.Errorf("no case for %s", r.Alert)
		}
	}
}

// TestAlarmsSayWhatToDo: the response to an alarm is that to its kind.
func TestAlarmsSayWhatToDo(t *testing.T) {
	for kind, want := range map[string]string{"CORRUPT": "hashkv",
		"NOSPACE": "--quota-backend-bytes"} {
		p, _ := play(t, scene{lines: fmt.Sprintf(`etcd_debugging_server_alarms{a, server_id="1", alarm_type=%q} 1SPAN`, kind)})
		for _, a := range p.active {
			if !strings.Contains(a.annotations["summary"], kind) ||
				!strings.Contains(a.annotations["description"], want) {
				t.Errorf("%s: %+v", kind, a.annotations)
			}
		}
	}
}

// TestClusters: clusters are judged each for itself, by the job, and members of other jobs not at
// all.
func TestClusters(t *testing.T) {
	other := strings.NewReplacer("{a", `{job="vigil-2", instance="x"`, `role="voter"} 3`,
		`role="voter"} 1`).Replace(healthy)
	_, got := play(t, scene{lines: other})
	if len(got) > 0 {
		t.Error(got)
	}
	gone := strings.ReplaceAll(other, "SPAN", "x20 stale")
	p, got := play(t, scene{lines: gone})
	if !slices.Equal(got, []string{"VigilNoQuorum"}) {
		t.Errorf("%q fire", got)
	}
	for _, a := range p.active {
		if a.labels.Get("job") != "vigil-2" {
			t.Errorf("%s", a.labels)
		}
	}
	if _, got = play(t, scene{lines: gone, minutes: 400}); len(got) > 0 {
		t.Errorf("%q fire for a cluster that went six hours ago", got)
	}
	if _, got = play(t, scene{lines: "up{job=\"node\", instance=\"a\"} 0SPAN"}); len(got) > 0 {
		t.Errorf("%q fire for another job", got)
	}
}

// TestResolved: the alerts of members that were down end when these are up again.
func TestResolved(t *testing.T) {
	p, got := play(t, scene{lines: "down a 20\ndown b 20\ndown c 20"})
	if len(got) == 0 {
		t.Fatal("nothing fires")
	}
	again := start.Add(41 * step)
	for _, name := range []string{"a", "b", "c"} {
		p.load(fill(fmt.Sprintf("up{%s} 1x10", name), 0), again, step)
		p.load(fill(fmt.Sprintf("etcd_server_is_learner{%s} 0x10", name), 0), again, step)
		p.load(fill(fmt.Sprintf(`vigil_cluster_members{%s, role="voter"} 3x10`, name),
			0), again, step)
	}
	p.evaluate(again, again)
	if got := p.names(true); len(got) > 0 {
		t.Errorf("%q fire", got)
	}
}
