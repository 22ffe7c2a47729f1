package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/survey"
)

// healthyReading returns a reading of a member that follows member 1.
func healthyReading(id uint64, at time.Time) survey.Reading {
	return survey.Reading{Endpoint: fmt.Sprintf("10.0.0.%d:2379", id), At: at, Metrics: probe.Metrics{}, Status: &etcdserverpb.StatusResponse{
		Header: &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: id, RaftTerm: 4, Revision: 900}, Version: "3.7.3", Leader: 1,
		RaftIndex: 1000, RaftAppliedIndex: 1000 - 10*(id-1), DbSize: 3 << 20, DbSizeInUse: 1 << 20, DbSizeQuota: 4 << 20}}
}

// healthy are the metrics of a member of Vigil with good disks and a good network.
const healthy = `# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} 2000
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 2000
etcd_disk_wal_fsync_duration_seconds_count 2000
# TYPE etcd_disk_backend_commit_duration_seconds histogram
etcd_disk_backend_commit_duration_seconds_bucket{le="0.001"} 2000
etcd_disk_backend_commit_duration_seconds_bucket{le="+Inf"} 2000
etcd_disk_backend_commit_duration_seconds_count 2000
# TYPE etcd_server_apply_duration_seconds histogram
etcd_server_apply_duration_seconds_bucket{le="0.001"} 2000
etcd_server_apply_duration_seconds_bucket{le="+Inf"} 2000
etcd_server_apply_duration_seconds_count 2000
# TYPE etcd_network_peer_round_trip_time_seconds histogram
etcd_network_peer_round_trip_time_seconds_bucket{le="0.001"} 200
etcd_network_peer_round_trip_time_seconds_bucket{le="+Inf"} 200
etcd_network_peer_round_trip_time_seconds_count 200
vigil_watch_largest_lag_revisions 0
`

// diagnose returns the diagnosis of a cluster of three healthy members after a change.
func diagnose(t *testing.T, change func(e *examination)) *diagnosis {
	t.Helper()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &examination{Round: &survey.Round{At: now, ClusterID: 0xc1}, limits: defaults(), now: now, expiries: make([]time.Time, 3), certErrs: make([]error, 3), lines: make([][]string, 3)}
	for i, name := range []string{"a", "b", "c"} {
		e.Members = append(e.Members, &etcdserverpb.Member{ID: uint64(i) + 1, Name: name})
		e.Readings = append(e.Readings, healthyReading(uint64(i)+1, now))
		e.Readings[i].Metrics = metrics(t, healthy)
		e.lines[i] = []string{"vigil"}
		e.clocks = append(e.clocks, &probe.Clock{Least: -time.Second, Most: time.Second})
	}
	change(e)
	return e.diagnose()
}

// hold sets the hash of each member.
func hold(e *examination, hashes ...uint32) {
	for i, h := range hashes {
		st := e.Readings[i].Status
		e.data = append(e.data, compared{later: st, hash: &etcdserverpb.HashKVResponse{Header: st.Header, Hash: h, HashRevision: 900, CompactRevision: 3}})
	}
}

// dead lets members not answer at the addresses that they advertise.
func dead(e *examination, members ...int) {
	for _, i := range members {
		e.Members[i].ClientURLs = []string{"http://" + e.Readings[i].Endpoint}
		e.Readings[i] = survey.Reading{Endpoint: e.Readings[i].Endpoint, StatusErr: &refusal{"gone"}, MetricsErr: &refusal{"gone"}, Advertised: e.Members[i].ID}
		e.clocks[i] = nil
	}
}

// only leaves the readings of the first n members, as if the others were not asked.
func only(e *examination, n int) {
	for i, m := range e.Members {
		m.ClientURLs = []string{"http://" + e.Readings[i].Endpoint}
	}
	e.Readings, e.clocks, e.expiries, e.certErrs, e.lines = e.Readings[:n], e.clocks[:n], e.expiries[:n], e.certErrs[:n], e.lines[:n]
}

func metrics(t *testing.T, text string) probe.Metrics {
	t.Helper()
	m, err := probe.ParseMetrics(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDoctorFinds(t *testing.T) {
	if d := diagnose(t, func(*examination) {}); !d.Healthy || len(d.Findings) > 0 || len(d.Passed) != len(checks) || d.Leader != "a" {
		t.Errorf("of a healthy cluster: %+v", d)
	}
	if d := diagnose(t, func(e *examination) { hold(e, 7, 7, 7) }); !d.Healthy || len(d.Findings) > 0 {
		t.Errorf("of members with the same data: %+v", d)
	}
	if d := diagnose(t, func(e *examination) { hold(e, 7, 8, 7); e.data[1].hash.CompactRevision = 5 }); !d.Healthy {
		t.Errorf("of members of which one has compacted meanwhile: %+v", d)
	}
	const slowDisk = `# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.01"} 1000
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.064"} 2000
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 2000
etcd_disk_wal_fsync_duration_seconds_sum 1
etcd_disk_wal_fsync_duration_seconds_count 2000
`
	for _, c := range []struct {
		check string
		s     severity
		what  string
		bad   func(e *examination)
	}{
		{"reachable", critical, "h:1: does not answer: gone", func(e *examination) {
			e.Readings[2] = survey.Reading{Endpoint: "h:1", StatusErr: &refusal{"gone"}}
		}},
		{"reachable", critical, "answers users only", func(e *examination) {
			e.Readings[2] = survey.Reading{Endpoint: "h:1", StatusErr: &refusal{"etcdserver: user name is empty"}}
		}},
		{"reachable", critical, "c: does not answer at 10.0.0.3:2379: gone", func(e *examination) { dead(e, 2) }},
		{"quorum", critical, "2 of 3 voting members answer, the smallest quorum: one more failure", func(e *examination) { dead(e, 0) }},
		{"quorum", critical, "1 of 3 voting members answer and 2 are needed", func(e *examination) { dead(e, 0, 2) }},
		{"quorum", warning, "4 of 5 voting members answer: 1 more may fail", func(e *examination) {
			e.Members = append(e.Members, &etcdserverpb.Member{ID: 4, Name: "d"}, &etcdserverpb.Member{ID: 5, Name: "e", ClientURLs: []string{"http://e:1"}})
			e.Readings = append(e.Readings, healthyReading(4, e.now), survey.Reading{Endpoint: "e:1", StatusErr: &refusal{"gone"}, Advertised: 5})
			e.clocks, e.expiries, e.certErrs, e.lines = append(e.clocks, nil, nil), make([]time.Time, 5), make([]error, 5), make([][]string, 5)
		}},
		{"quorum", note, "2 voting members survive no more failures than 1", func(e *examination) { e.Members = e.Members[:2] }},
		{"leader", critical, "b: has had no leader for 12s: it accepts no writes", func(e *examination) {
			e.Readings[1].Status.Leader, e.Readings[1].Status.Errors = 0, []string{"etcdserver: no leader", "vigil: there has been no leader for 12s"}
		}},
		{"leader", critical, "has no leader", func(e *examination) { e.Readings[1].Status.Leader = 0 }},
		{"leader", warning, "follows another leader", func(e *examination) { e.Readings[1].Status.Leader = 2 }},
		{"leader", critical, "10.0.0.2:2379: belongs to another cluster: 5 and not c1", func(e *examination) { e.Readings[1].Status.Header.ClusterId = 5 }},
		{"quorum", critical, "2 of 3 voting members answer", func(e *examination) { // as after a restore of two of three
			e.Readings[1].Status.Header.ClusterId, e.Readings[1].Status.Header.MemberId, e.Readings[1].Advertised = 5, 7, 2
		}},
		{"reachable", critical, "c: has never reached the cluster", func(e *examination) { only(e, 2); e.Members[2].ClientURLs = nil }},
		{"alarms", critical, ": alarm CORRUPT", func(e *examination) { e.Alarms = []*etcdserverpb.AlarmMember{{Alarm: etcdserverpb.AlarmType_CORRUPT}} }},
		{"alarms", critical, "alarm NOSPACE", func(e *examination) {
			e.Alarms = []*etcdserverpb.AlarmMember{{MemberID: 2, Alarm: etcdserverpb.AlarmType_NOSPACE}}
		}},
		{"alarms", critical, "b: alarm CORRUPT", func(e *examination) { // without a quorum the alarms cannot be listed
			e.ListErr = &refusal{"timeout"}
			e.Readings[0].Status.Errors = []string{"etcdserver: no leader", (&etcdserverpb.AlarmMember{MemberID: 2, Alarm: etcdserverpb.AlarmType_CORRUPT}).String()}
		}},
		{"full", critical, "b: its disk is full", func(e *examination) { e.Readings[1].Metrics = metrics(t, healthy+"vigil_disk_full 1\n") }},
		{"damage", critical, "b: 3 damaged records", func(e *examination) { e.Readings[1].Metrics = metrics(t, healthy+"vigil_damage_found_total 3\n") }},
		{"damage", critical, "a: it found 2 times", func(e *examination) {
			e.Readings[0].Metrics = metrics(t, healthy+"vigil_consistency_differences_total 2\n")
		}},
		{"watchers", warning, "the clients of 4 watchers do not read", func(e *examination) { e.Readings[1].Metrics = metrics(t, healthy+"vigil_watch_stalled_watchers 4\n") }},
		{"data", critical, "b: is at revision 1 where", func(e *examination) {
			hold(e, 7, 7, 7)
			e.Readings[1].Status.Header.Revision = 1
			e.Readings[1].Status.RaftAppliedIndex = 1000
			e.data[1].later = e.Readings[1].Status
		}},
		{"data", critical, "b: its data differ from those of the majority at revision 900: hash 8 and not 7", func(e *examination) { hold(e, 7, 8, 7) }},
		{"data", critical, "no majority of them has the same", func(e *examination) { hold(e, 7, 8, 9) }},
		{"data", critical, "no majority of them has the same", func(e *examination) { // a member at two addresses has one vote
			hold(e, 7, 8, 8)
			e.Readings[2].Status.Header.MemberId = 2
		}},
		{"versions", warning, "a, c: 3.7.3; b: 3.6.0", func(e *examination) { e.Readings[1].Status.Version = "3.6.0" }},
		{"versions", warning, "a: 0.1.0; b: 0.2.0", func(e *examination) {
			e.Readings[0].Metrics = metrics(t, healthy+"vigil_build_info{version=\"0.1.0\"} 1\n")
			e.Readings[1].Metrics = metrics(t, healthy+"vigil_build_info{version=\"0.2.0\"} 1\n")
		}},
		{"space", warning, "90% of the quota", func(e *examination) { e.Readings[1].Status.DbSizeInUse = 36; e.Readings[1].Status.DbSizeQuota = 40 }},
		{"space", critical, "98% of the quota", func(e *examination) { e.Readings[1].Status.DbSizeInUse = 98; e.Readings[1].Status.DbSizeQuota = 100 }},
		{"lag", warning, "lags the leader by 9000 entries", func(e *examination) {
			e.Readings[0].Status.RaftIndex = 9980 + 10
			e.Readings[1].Status.RaftAppliedIndex = 990
		}},
		{"lag", note, "is a learner", func(e *examination) { e.Readings[2].Status.IsLearner = true }},
		{"disk", warning, "writing the raft log to the disk takes 63ms", func(e *examination) { e.Readings[1].Metrics = metrics(t, slowDisk) }},
		{"disk", critical, "takes 466ms or more in one of 10 cases", func(e *examination) { // few, and nearly all are slow
			e.Readings[1].Metrics = metrics(t, strings.NewReplacer(" 1000\n", " 20\n", " 2000\n", " 120\n", "0.064", "0.528").Replace(slowDisk))
		}},
		{"disk", warning, "50 of 100 writes were slow", func(e *examination) {
			e.Readings[1].Metrics = metrics(t, "etcd_server_slow_apply_total 50\netcd_server_proposals_applied_total 100\n")
		}},
		{"network", warning, "101 writes wait", func(e *examination) { e.Readings[1].Metrics = metrics(t, "etcd_server_proposals_pending 101\n") }},
		{"clocks", warning, "c: its clock differs by 3s or more from that of a, b", func(e *examination) { e.clocks[2] = &probe.Clock{Least: 4 * time.Second, Most: 5 * time.Second} }},
		{"clocks", warning, "a: its clock differs by 3s or more from that of b, c", func(e *examination) { e.clocks[0] = &probe.Clock{Least: 4 * time.Second, Most: 5 * time.Second} }},
		{"reachable", critical, "c: does not answer at 10.0.0.3:2379: gone", func(e *examination) {
			dead(e, 2)
			e.certErrs[2] = &refusal{"remote error: tls: certificate required"}
		}},
		{"certificates", critical, "expired on 2030-01-01", func(e *examination) { e.expiries[0] = e.now.Add(-24 * time.Hour) }},
		{"certificates", critical, "b: its certificate for peer (server) expired on", func(e *examination) {
			e.Readings[1].Metrics = metrics(t, healthy+"vigil_certificate_expiry_timestamp_seconds{listener=\"peer\",use=\"server\"} 1.8e+09\n")
		}},
		{"certificates", critical, "expires in 3d", func(e *examination) { e.expiries[0] = e.now.Add(72 * time.Hour) }},
		{"certificates", warning, "expires in 20d", func(e *examination) { e.expiries[0] = e.now.Add(20 * 24 * time.Hour) }},
		{"watchers", warning, "a watcher is 20000 revisions behind", func(e *examination) {
			e.Readings[0].Metrics = metrics(t, "vigil_watch_largest_lag_revisions 20000\n")
		}},
		{"compaction", warning, "1999000 revisions are kept; none was compacted since it started", func(e *examination) {
			e.Readings[0].Metrics = metrics(t, "etcd_debugging_mvcc_current_revision 2000000\netcd_debugging_mvcc_compact_revision 1000\n")
		}},
		{"archive", critical, "a: writes of the last 1m30s are not archived", func(e *examination) {
			for i := range e.Readings {
				e.Readings[i].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 90.5\n")
			}
		}},
		{"archive", critical, "b: it does not write to its archive", func(e *examination) {
			e.Readings[0].Metrics, e.Readings[2].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\n"), metrics(t, healthy+"vigil_archive_lag_seconds 0\n")
			e.Readings[1].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\nvigil_archive_refused 1\n")
		}},
		{"archive", warning, "c: it has no archive, and other members have one", func(e *examination) {
			e.Readings[0].Metrics, e.Readings[1].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\n"), metrics(t, healthy+"vigil_archive_lag_seconds 0\n")
		}},
		{"archive", warning, "b: it has not reached the archive for 1m40s", func(e *examination) {
			e.Readings[0].Metrics, e.Readings[2].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\n"), metrics(t, healthy+"vigil_archive_lag_seconds 0\n")
			e.Readings[1].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 70\nvigil_archive_failing_seconds 100\n")
		}},
		{"archive", warning, "b: it has found 2 gaps in the archive", func(e *examination) {
			e.Readings[0].Metrics, e.Readings[2].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\n"), metrics(t, healthy+"vigil_archive_lag_seconds 0\n")
			e.Readings[1].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\nvigil_archive_gaps_total 2\n")
		}},
		{"settings", critical, "--unsafe-no-fsync", func(e *examination) { e.lines[0] = []string{"etcd", "--unsafe-no-fsync"} }},
		{"settings", warning, "--election-timeout of 500ms", func(e *examination) { e.lines[0] = []string{"etcd", "-election-timeout", "500"} }},
		{"settings", warning, "90 of 100 files", func(e *examination) {
			e.Readings[0].Metrics = metrics(t, "process_open_fds 90\nprocess_max_fds 100\n")
		}},
	} {
		d := diagnose(t, c.bad)
		at := slices.IndexFunc(d.Findings, func(f finding) bool { return f.Check == c.check && strings.Contains(f.Member+": "+f.What, c.what) })
		if at < 0 || d.Findings[at].Severity != c.s || d.Findings[at].Next == "" {
			t.Errorf("%s, %q is not found in %+v", c.check, c.what, d.Findings)
		}
		if d.Healthy && c.s != note || slices.Contains(d.Passed, c.check) {
			t.Errorf("%s, %q: healthy %v, passed %v", c.check, c.what, d.Healthy, d.Passed)
		}
	}
}

// TestUnchecked: what was not looked at is never ok.
func TestUnchecked(t *testing.T) {
	few := metrics(t, strings.ReplaceAll(healthy, " 2000\n", " 12\n"))
	for _, c := range []struct {
		check, member, why string
		change             func(e *examination)
	}{
		{"", "c", "it does not answer", func(e *examination) { dead(e, 2) }},
		{"", "h:1", "its status is not known", func(e *examination) { e.Readings[2] = survey.Reading{Endpoint: "h:1", StatusErr: &refusal{"gone"}} }},
		{"", "b", "it is not among the endpoints", func(e *examination) { only(e, 1) }},
		{"quorum", "", "b, c not asked; --cluster=true asks all", func(e *examination) { only(e, 1) }},
		{"data", "", "one member answers: its data are compared with none", func(e *examination) { only(e, 1) }},
		{"data", "b", "could not be compared: slow", func(e *examination) { hold(e, 7, 7, 7); e.data[1] = compared{err: &refusal{"slow"}} }},
		{"data", "b", "its data are damaged", func(e *examination) {
			hold(e, 7, 7, 7)
			e.Readings[1].Metrics = metrics(t, healthy+"vigil_damage_found_total 3\n")
		}},
		{"lag", "b", "the leader did not answer", func(e *examination) { dead(e, 0) }},
		{"disk", "b", "12 writes of the raft log since it started are too few", func(e *examination) { e.Readings[1].Metrics = few }},
		{"disk", "b", "12 commits since", func(e *examination) { e.Readings[1].Metrics = few }},
		{"watchers", "b", "its metrics cannot be read", func(e *examination) { e.Readings[1].Metrics, e.Readings[1].MetricsErr = nil, &refusal{"no"} }},
		{"full", "b", "its metrics cannot be read", func(e *examination) { e.Readings[1].Metrics, e.Readings[1].MetricsErr = nil, &refusal{"no"} }},
		{"network", "b", "0 round trips", func(e *examination) { e.Readings[1].Metrics = metrics(t, "vigil_watch_largest_lag_revisions 0\n") }},
		{"clocks", "b", "its time cannot be read", func(e *examination) { e.clocks[1] = nil }},
		{"certificates", "b", "its certificate cannot be read: no", func(e *examination) { e.certErrs[1] = &refusal{"no"} }},
		{"certificates", "", "open none.pem", func(e *examination) { e.files = []string{"none.pem"} }},
		{"settings", "b", "its command line cannot be read", func(e *examination) { e.lines[1] = nil }},
		{"quorum", "", "the members are not known", func(e *examination) { e.Members, e.ListErr = nil, &refusal{"no"} }},
	} {
		d := diagnose(t, c.change)
		if !slices.ContainsFunc(d.Unchecked, func(u unchecked) bool {
			return u.Check == c.check && u.Member == c.member && strings.Contains(u.Why, c.why)
		}) {
			t.Errorf("%s of %s is not among the unchecked: %+v", c.check, c.member, d.Unchecked)
		}
		if slices.Contains(d.Passed, c.check) {
			t.Errorf("%s of %s: passed %v", c.check, c.member, d.Passed)
		}
	}
}

// TestDrawing compares the whole text for a cluster of which one member does not answer, and one has few writes.
func TestDrawing(t *testing.T) {
	d := diagnose(t, func(e *examination) {
		hold(e, 7, 7, 7)
		dead(e, 2)
		e.data[2] = compared{}
		e.Readings[1].Metrics = metrics(t, strings.ReplaceAll(healthy, " 2000\n", " 12\n"))
	})
	const want = `CRITICAL  c: does not answer at 10.0.0.3:2379: gone
    next: check its process and its log, and start it again with its data directory, which loses nothing; if it runs, check that this machine can reach the address
    page: docs/operations/observe.md#vigilmemberdown

CRITICAL  2 of 3 voting members answer, the smallest quorum: one more failure stops all writes
    next: start the other members again first
    page: docs/operations/observe.md#vigilquorumatrisk

ok  all agree on a leader (a, b)
ok  no alarm is raised (a, b)
ok  no disk is full (a, b)
ok  no damaged data were found (a, b)
ok  the members hold the same data (a, b)
ok  all members have one version (a, b)
ok  no quota is nearly used (a, b)
ok  no member lags far (a, b)
ok  the network is fast, and the leader stable (a, b)
ok  clocks agree (a, b)
ok  no certificate expires soon (a, b)
ok  watchers keep up (a, b)
ok  old revisions are compacted (a, b)
ok  the archive, if there is one, is complete (a, b)
ok  no setting is known to be harmful (a, b)
not checked: c, everything: it does not answer
not checked: b, disk: 12 writes of the raft log since it started are too few to judge by
not checked: b, disk: 12 commits since it started are too few to judge by
not checked: b, disk: 12 applied writes since it started are too few to judge by

3 members, leader a: 2 critical, 0 warnings, not everything was checked`
	if got := strings.Join(d.draw(200, screen.Paint{}), "\n"); got != want {
		t.Errorf("got:\n%s\n\nwant:\n%s", got, want)
	}
}

// TestPages: each page of a finding exists, and has the heading.
func TestPages(t *testing.T) {
	pages := map[string]bool{}
	for _, c := range checks {
		pages[c.page] = true
	}
	for _, name := range []string{"cluster.go", "data.go", "load.go", "machine.go"} {
		code, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range regexp.MustCompile(`"(docs/[^"]+)"`).FindAllStringSubmatch(string(code), -1) {
			pages[s[1]] = true
		}
	}
	for page := range pages {
		name, anchor, _ := strings.Cut(page, "#")
		text, err := os.ReadFile("../../../" + name)
		if err != nil {
			t.Error(err)
			continue
		}
		found := anchor == ""
		for _, s := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
			plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(s[1]), "")
			found = found || strings.ReplaceAll(plain, " ", "-") == anchor
		}
		if !found {
			t.Errorf("%s has no such heading", page)
		}
	}
}

// TestRejectedTLS: nobody is told to start a member that was reached, but not by TLS.
func TestRejectedTLS(t *testing.T) {
	for why, change := range map[string]func(e *examination){
		"an alert":                func(e *examination) { e.certErrs[2] = &refusal{"remote error: tls: certificate required"} },
		"an expired certificate":  func(e *examination) { e.expiries[2] = e.now.Add(-time.Hour) },
		"nothing":                 func(e *examination) { e.certErrs[2] = &refusal{"connection refused"} },
		"a certificate, no reply": func(e *examination) { e.expiries[2] = e.now.Add(400 * 24 * time.Hour) },
	} {
		d := diagnose(t, func(e *examination) {
			dead(e, 2)
			change(e)
		})
		runs := strings.Contains(d.Findings[0].Next, "it runs, and this program cannot make a TLS connection")
		if want := strings.HasPrefix(why, "an "); runs != want || d.Findings[0].Check != "reachable" {
			t.Errorf("%s: %+v", why, d.Findings[0])
		}
	}
}

// TestFindPages: the pages of a package and of an archive are found from the program's place.
func TestFindPages(t *testing.T) {
	for pages, program := range map[string]string{"usr/share/doc/vigil": "usr/bin/vigilctl", "vigil-1.0": "vigil-1.0/bin/vigilctl"} {
		root := t.TempDir()
		at := filepath.Join(root, pages, "docs", "operations")
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := findPages(filepath.Join(root, program)); got != "" {
			t.Errorf("of %s without pages: %s", program, got)
		}
		if err := os.WriteFile(filepath.Join(at, "doctor.md"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, want := findPages(filepath.Join(root, program)), filepath.Join(root, pages)+"/"; got != want {
			t.Errorf("of %s: %s, want %s", program, got, want)
		}
	}
	d := &diagnosis{pages: "/usr/share/doc/vigil/", Findings: []finding{{Severity: note, What: "w", Next: "n", Page: "docs/p.md#h"}}}
	if text := strings.Join(d.draw(100, screen.Paint{}), "\n"); !strings.Contains(text, "\n    page: /usr/share/doc/vigil/docs/p.md#h\n") {
		t.Error(text)
	}
}

type refusal struct{ s string }

func (e *refusal) Error() string { return e.s }

func TestDoctorNarrow(t *testing.T) {
	d := diagnose(t, func(e *examination) {
		e.Readings[2] = survey.Reading{Endpoint: "h:1", StatusErr: &refusal{strings.Repeat("x", 70)}}
	})
	for _, line := range d.draw(40, screen.Paint{}) {
		if len([]rune(line)) > 40 {
			t.Errorf("%q", line)
		}
	}
}

func TestNoAnswers(t *testing.T) {
	d := diagnose(t, func(e *examination) {
		for i := range e.Readings {
			e.Readings[i] = survey.Reading{Endpoint: "h:1", StatusErr: &refusal{"gone"}}
		}
		e.Members = nil
	})
	if d.Healthy || len(d.Passed) > 0 || len(d.Unchecked) != 3 {
		t.Errorf("%+v", d)
	}
}

// TestLimits: a limit that is given decides, and a check that is left out is not ok.
func TestLimits(t *testing.T) {
	d := diagnose(t, func(e *examination) {
		var err error
		if e.limits, err = parseLimits([]string{"clock=5s", "lag=7"}); err != nil {
			t.Fatal(err)
		}
		e.omit = []string{"damage"}
		e.clocks[2] = &probe.Clock{Least: 4 * time.Second, Most: 5 * time.Second}
		e.Readings[0].Metrics = metrics(t, healthy+"vigil_damage_found_total 3\n")
	})
	if len(d.Findings) != 2 || d.Findings[0].Check != "lag" || d.Findings[1].Member != "c" || slices.Contains(d.Passed, "damage") || !slices.Contains(d.Passed, "clocks") {
		t.Errorf("%+v", d)
	}
	for text, want := range map[string]string{
		"clock":           "want NAME=VALUE, where NAME is one of: raft-log, raft-log-critical, store",
		"none=1":          "want NAME=VALUE",
		"lag=many":        "--limit lag=many: the value must be like 5000, and not negative",
		"lag=NaN":         "must be like 5000",
		"clock=-1s":       "--limit clock=-1s: the value must be like 1s, and not negative",
		"certificate=30d": "must be like 720h0m0s",
	} {
		if _, err := parseLimits([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := validateChecks([]string{"disk", "disc"}); err == nil || !strings.Contains(err.Error(), "--skip disc: no check has this name; the checks are: reachable, leader") {
		t.Error(err)
	}
}

// TestLagMeanwhile: a member that has applied since what the leader had does not lag, although the answers seem to say so.
func TestLagMeanwhile(t *testing.T) {
	d := diagnose(t, func(e *examination) {
		hold(e, 7, 7, 7)
		e.Readings[0].Status.RaftIndex, e.Readings[0].Status.RaftAppliedIndex = 20_000, 20_000
		e.data[1].later = &etcdserverpb.StatusResponse{Header: e.Readings[1].Status.Header, RaftAppliedIndex: 19_000}
		e.data[2].later = &etcdserverpb.StatusResponse{Header: e.Readings[2].Status.Header, RaftAppliedIndex: 2000}
	})
	if len(d.Findings) != 1 || d.Findings[0].Member != "c" || !strings.Contains(d.Findings[0].What, "by 18000 entries") {
		t.Errorf("%+v", d.Findings)
	}
}

// TestDoctorPage: the page describes every check and every limit with its default.
func TestDoctorPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\| ([^|]+) \\|").FindAllStringSubmatch(string(page), -1) {
		values := strings.Split(row[2], ", ")
		for i, name := range strings.Split(row[1], ", ") {
			rows[strings.Trim(name, "`")] = values[min(i, len(values)-1)]
		}
	}
	for _, name := range checkNames() {
		if rows[name] == "" {
			t.Errorf("no row of the check %s", name)
		}
	}
	l := limits{}
	l.flags().VisitAll(func(f *pflag.Flag) {
		if got := strings.TrimSuffix(f.DefValue, "0m0s"); rows[f.Name] != got {
			t.Errorf("the limit %s is %s by default, the page says %q", f.Name, got, rows[f.Name])
		}
	})
}
