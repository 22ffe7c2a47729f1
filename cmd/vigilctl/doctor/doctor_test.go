package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// diagnose returns the diagnosis of a cluster of three healthy members after a change.
func diagnose(t *testing.T, change func(e *examination)) *diagnosis {
	t.Helper()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &examination{Round: &survey.Round{At: now}, now: now, expiries: make([]time.Time, 3), lines: make([][]string, 3)}
	for i, name := range []string{"a", "b", "c"} {
		e.Members = append(e.Members, &etcdserverpb.Member{ID: uint64(i) + 1, Name: name})
		e.Readings = append(e.Readings, healthyReading(uint64(i)+1, now))
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
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.01"} 50
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.064"} 100
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 100
etcd_disk_wal_fsync_duration_seconds_sum 1
etcd_disk_wal_fsync_duration_seconds_count 100
`
	for _, c := range []struct {
		check string
		s     severity
		what  string
		bad   func(e *examination)
	}{
		{"reachable", critical, "does not answer: gone", func(e *examination) {
			e.Readings[2] = survey.Reading{Endpoint: "h:1", StatusErr: &refusal{"gone"}}
		}},
		{"quorum", critical, "one more failure", func(e *examination) {
			e.Readings[2] = survey.Reading{Endpoint: "h:1", StatusErr: &refusal{"gone"}}
		}},
		{"quorum", note, "2 voting members survive no more failures than 1", func(e *examination) { e.Members = e.Members[:2] }},
		{"leader", critical, "has no leader", func(e *examination) { e.Readings[1].Status.Leader = 0 }},
		{"leader", warning, "follows another leader", func(e *examination) { e.Readings[1].Status.Leader = 2 }},
		{"leader", critical, "belongs to another cluster", func(e *examination) { e.Readings[1].Status.Header.ClusterId = 5 }},
		{"alarms", critical, "alarm NOSPACE", func(e *examination) {
			e.Alarms = []*etcdserverpb.AlarmMember{{MemberID: 2, Alarm: etcdserverpb.AlarmType_NOSPACE}}
		}},
		{"data", critical, "b: is at revision 1 where", func(e *examination) {
			hold(e, 7, 7, 7)
			e.Readings[1].Status.Header.Revision = 1
			e.Readings[1].Status.RaftAppliedIndex = 1000
			e.data[1].later = e.Readings[1].Status
		}},
		{"data", critical, "b: its data differ from those of the majority at revision 900: hash 8 and not 7", func(e *examination) { hold(e, 7, 8, 7) }},
		{"data", critical, "no majority of them has the same", func(e *examination) { hold(e, 7, 8, 9) }},
		{"data", note, "could not be compared", func(e *examination) { hold(e, 7, 7, 7); e.data[1] = compared{err: &refusal{"slow"}} }},
		{"versions", warning, "a, c: 3.7.3; b: 3.6.0", func(e *examination) { e.Readings[1].Status.Version = "3.6.0" }},
		{"space", warning, "90% of the quota", func(e *examination) { e.Readings[1].Status.DbSize = 36; e.Readings[1].Status.DbSizeQuota = 40 }},
		{"space", critical, "98% of the quota", func(e *examination) { e.Readings[1].Status.DbSize = 98; e.Readings[1].Status.DbSizeQuota = 100 }},
		{"lag", warning, "lags the leader by 9000 entries", func(e *examination) {
			e.Readings[0].Status.RaftIndex = 9980 + 10
			e.Readings[1].Status.RaftAppliedIndex = 990
		}},
		{"lag", note, "is a learner", func(e *examination) { e.Readings[2].Status.IsLearner = true }},
		{"disk", warning, "writing the raft log to the disk takes 63ms", func(e *examination) { e.Readings[1].Metrics = metrics(t, slowDisk) }},
		{"disk", warning, "50 of 100 writes were slow", func(e *examination) {
			e.Readings[1].Metrics = metrics(t, "etcd_server_slow_apply_total 50\netcd_server_proposals_applied_total 100\n")
		}},
		{"network", warning, "101 writes wait", func(e *examination) { e.Readings[1].Metrics = metrics(t, "etcd_server_proposals_pending 101\n") }},
		{"clocks", warning, "differs by 3s or more", func(e *examination) { e.clocks[2] = &probe.Clock{Least: 4 * time.Second, Most: 5 * time.Second} }},
		{"certificates", critical, "expired on 2030-01-01", func(e *examination) { e.expiries[0] = e.now.Add(-24 * time.Hour) }},
		{"certificates", critical, "expires in 3d", func(e *examination) { e.expiries[0] = e.now.Add(72 * time.Hour) }},
		{"certificates", warning, "expires in 20d", func(e *examination) { e.expiries[0] = e.now.Add(20 * 24 * time.Hour) }},
		{"watchers", warning, "a watcher is 20000 revisions behind", func(e *examination) {
			e.Readings[0].Metrics = metrics(t, "vigil_watch_largest_lag_revisions 20000\n")
		}},
		{"compaction", warning, "1999000 revisions are kept; the last compaction was never", func(e *examination) {
			e.Readings[0].Metrics = metrics(t, "etcd_debugging_mvcc_current_revision 2000000\netcd_debugging_mvcc_compact_revision 1000\n")
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
	})
	if d.Healthy || len(d.Passed) != 1 || d.Passed[0] != "certificates" {
		t.Errorf("%+v", d)
	}
}
