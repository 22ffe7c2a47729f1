package health

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/amount"
)

// healthyReading returns a reading of a member that follows member 1.
func healthyReading(id uint64, at time.Time) Reading {
	return Reading{Endpoint: fmt.Sprintf("10.0.0.%d:2379", id), At: at, Metrics: Metrics{},
		Status: &etcdserverpb.StatusResponse{
			Header: &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: id, RaftTerm: 4,
				Revision: 900}, Version: "3.7.3", Leader: 1,
			RaftIndex: 1000, RaftAppliedIndex: 1000 - 10*(id-1), DbSize: 3 << 20,
			DbSizeInUse: 1 << 20,
			DbSizeQuota: 4 << 20}}
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
func diagnose(t *testing.T, change func(e *Examination)) *Diagnosis {
	t.Helper()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &Examination{Round: &Round{At: now, ClusterID: 0xc1}, Limits: Defaults(), Now: now,
		Expiries: make([]time.Time, 3), CertErrs: make([]error, 3),
		Flags: make([]map[string]string, 3)}
	for i, name := range []string{"a", "b", "c"} {
		e.Members = append(e.Members, &etcdserverpb.Member{ID: uint64(i) + 1, Name: name})
		e.Readings = append(e.Readings, healthyReading(uint64(i)+1, now))
		e.Readings[i].Metrics = metrics(t, healthy)
		e.Flags[i] = map[string]string{}
		e.Clocks = append(e.Clocks, &Clock{Least: -time.Second, Most: time.Second})
	}
	change(e)
	for i := range e.Readings {
		if x := &e.Readings[i]; x.Metrics != nil && x.Recent == nil {
			x.Recent = []Window{Between(nil, x.Metrics, 10*time.Minute)}
		}
	}
	return e.Diagnose()
}

// hold sets the hash of each member.
func hold(e *Examination, hashes ...uint32) {
	for i, h := range hashes {
		st := e.Readings[i].Status
		e.Data = append(e.Data,
			Compared{Later: st, Hash: &etcdserverpb.HashKVResponse{Header: st.Header, Hash: h,
				HashRevision: 900, CompactRevision: 3}})
	}
}

// dead lets members not answer at the addresses that they advertise.
func dead(e *Examination, members ...int) {
	for _, i := range members {
		e.Members[i].ClientURLs = []string{"http://" + e.Readings[i].Endpoint}
		e.Readings[i] = Reading{Endpoint: e.Readings[i].Endpoint, StatusErr: &refusal{"gone"},
			MetricsErr: &refusal{"gone"}, Advertised: e.Members[i].ID}
		e.Clocks[i] = nil
	}
}

// only leaves the readings of the first n members, as if the others were not asked.
func only(e *Examination, n int) {
	for i, m := range e.Members {
		m.ClientURLs = []string{"http://" + e.Readings[i].Endpoint}
	}
	e.Readings, e.Clocks, e.Expiries, e.CertErrs, e.Flags = e.Readings[:n], e.Clocks[:n],
		e.Expiries[:n], e.CertErrs[:n], e.Flags[:n]
}

func metrics(t *testing.T, text string) Metrics {
	t.Helper()
	m, err := ParseMetrics(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFinds(t *testing.T) {
	if d := diagnose(t, func(*Examination) {}); !d.Healthy || len(d.Findings) > 0 ||
		len(d.Passed) != len(checks) || d.Leader != "a" {
		t.Errorf("of a healthy cluster: %+v", d)
	}
	if d := diagnose(t, func(e *Examination) { hold(e, 7, 7, 7) }); !d.Healthy ||
		len(d.Findings) > 0 {
		t.Errorf("of members with the same data: %+v", d)
	}
	if d := diagnose(t, func(e *Examination) {
		hold(e, 7, 8,
			7)
		e.Data[1].Hash.CompactRevision = 5
	}); !d.Healthy || slices.Contains(d.Passed, "data") || len(d.Unchecked) != 1 ||
		d.Unchecked[0].Member != "b" {
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
		s     Severity
		what  string
		bad   func(e *Examination)
	}{
		{"reachable", Critical, "h:1: does not answer: gone", func(e *Examination) {
			e.Readings[2] = Reading{Endpoint: "h:1", StatusErr: &refusal{"gone"}}
		}},
		{"reachable", Critical, "is alive, and knows no leader: nobody can log in",
			func(e *Examination) {
				e.Members, e.Readings[1] = nil, Reading{Endpoint: "h:1", StatusErr: ErrNoLogin}
			}},
		{"reachable", Critical, "answers users only", func(e *Examination) {
			e.Readings[2] = Reading{Endpoint: "h:1",
				StatusErr: &refusal{"etcdserver: user name is empty"}}
		}},
		{"reachable", Critical, "c: does not answer at 10.0.0.3:2379: gone",
			func(e *Examination) { dead(e, 2) }},
		{"quorum", Critical,
			"2 of 3 voting members answer, the smallest quorum: if the others have failed, one more failure", func(e *Examination) { dead(e, 0) }},
		{"quorum", Critical, "1 of 3 voting members answer and 2 are needed: no write",
			func(e *Examination) { dead(e, 0, 2); e.Readings[1].Status.Leader = 0 }},
		{"quorum", Critical,
			"1 of 3 voting members answer and 2 are needed, but a is followed as the leader",
			func(e *Examination) { dead(e, 1, 2) }},
		{"quorum", Warning, "4 of 5 voting members answer: if the others have failed, writes go on after 1 more failure, and no longer after another", func(e *Examination) {
			e.Members = append(e.Members, &etcdserverpb.Member{ID: 4, Name: "d"},
				&etcdserverpb.Member{ID: 5, Name: "e", ClientURLs: []string{"http://e:1"}})
			e.Readings = append(e.Readings, healthyReading(4, e.Now),
				Reading{Endpoint: "e:1", StatusErr: &refusal{"gone"}, Advertised: 5})
			e.Clocks, e.Expiries, e.CertErrs, e.Flags = append(e.Clocks, nil, nil),
				make([]time.Time, 5), make([]error, 5), make([]map[string]string, 5)
		}},
		{"quorum", Note, "2 voting members survive no failure, as 1 would",
			func(e *Examination) { e.Members = e.Members[:2] }},
		{"leader", Critical, "b: has had no leader for 12s: it accepts no writes",
			func(e *Examination) {
				e.Readings[1].Status.Leader, e.Readings[1].Status.Errors = 0,
					[]string{"etcdserver: no leader", "vigil: there has been no leader for 12s"}
			}},
		{"leader", Critical, "has no leader",
			func(e *Examination) { e.Readings[1].Status.Leader = 0 }},
		{"leader", Warning, "follows another leader",
			func(e *Examination) { e.Readings[1].Status.Leader = 2 }},
		{"leader", Critical, "10.0.0.2:2379: belongs to another cluster: 5 and not c1",
			func(e *Examination) { e.Readings[1].Status.Header.ClusterId = 5 }},
		{"quorum", Critical, "2 of 3 voting members answer", func(e *Examination) { // as after a restore of two of three
			e.Readings[1].Status.Header.ClusterId, e.Readings[1].Status.Header.MemberId,
				e.Readings[1].Advertised = 5, 7, 2
		}},
		{"leader", Critical, "10.0.0.3:2379: is not a member of the cluster", func(e *Examination) { // removed while it was cut off
			e.Members = e.Members[:2]
			e.Readings[2].Status.Leader = 0
		}},
		{"reachable", Critical,
			"c: does not answer at 10.0.0.3:2379: accepts the connection and does not answer",
			func(e *Examination) {
				dead(e, 2)
				e.Readings[2].StatusErr = &refusal{"accepts the connection and does not answer: check whether its process hangs"}
			}},
		{"reachable", Note, "c: a cannot connect to it, so it connects to a, which serves as well: refused", func(e *Examination) {
			e.Readings[0].Failures = []PeerFailure{{Member: "3", Reason: "unreachable",
				Text: "refused", Comes: true}}
		}},
		{"reachable", Critical, "c: has never reached the cluster",
			func(e *Examination) { only(e, 2); e.Members[2].ClientURLs = nil }},
		{"alarms", Critical, ": alarm CORRUPT",
			func(e *Examination) { e.Alarms = []*etcdserverpb.AlarmMember{{Alarm: etcdserverpb.AlarmType_CORRUPT}} }},
		{"alarms", Critical, "alarm NOSPACE", func(e *Examination) {
			e.Alarms = []*etcdserverpb.AlarmMember{{MemberID: 2,
				Alarm: etcdserverpb.AlarmType_NOSPACE}}
		}},
		{"alarms", Critical, "b: alarm CORRUPT", func(e *Examination) {
			e.Readings[0].Status.Errors = []string{"etcdserver: no leader",
				(&etcdserverpb.AlarmMember{MemberID: 2,
					Alarm: etcdserverpb.AlarmType_CORRUPT}).String()}
			e.FindAlarms()
		}},
		{"full", Critical, "b: its disk is full",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t,
					healthy+"vigil_disk_full 1\n")
			}},
		{"full", Critical, "b: its disk is full, and 7 committed entries wait",
			func(e *Examination) {
				e.Readings[1].Status.RaftIndex, e.Readings[1].Status.RaftAppliedIndex = 107, 100
				e.Readings[1].Metrics = metrics(t,
					healthy+"vigil_disk_full 1\nvigil_apply_waits_for_space 1\n")
			}},
		{"full", Critical, "b: its disk is full, and its raft log takes no entries",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t,
					healthy+"vigil_disk_full 1\nvigil_raft_log_waits_for_space 1\n")
			}},
		{"damage", Critical,
			"b: files of its data directory are gone, and it accepts no writes: data is not at its path; it was moved", func(e *Examination) {
				e.Readings[1].Status.Errors = []string{"vigil: files of the data directory are gone: data is not at its path; it was moved"}
			}},
		{"damage", Critical, "b: damaged data were found at 3 places",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t,
					healthy+"vigil_damage_found_total 3\n")
			}},
		{"damage", Critical, "a: it found 2 times", func(e *Examination) {
			e.Readings[0].Metrics = metrics(t, healthy+"vigil_consistency_differences_total 2\n")
		}},
		{"watchers", Warning, "the clients of 4 watchers do not read",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t,
					healthy+"vigil_watch_stalled_watchers 4\n")
			}},
		{"data", Critical, "b: is at revision 1 where", func(e *Examination) {
			hold(e, 7, 7, 7)
			e.Readings[1].Status.Header.Revision = 1
			e.Readings[1].Status.RaftAppliedIndex = 1000
			e.Data[1].Later = e.Readings[1].Status
		}},
		{"data", Critical, "b: its data differ from those of the majority at revision 900: hash 8 and not 7", func(e *Examination) { hold(e, 7, 8, 7) }},
		{"data", Critical, "no majority of them has the same",
			func(e *Examination) { hold(e, 7, 8, 9) }},
		{"data", Critical, "no majority of them has the same", func(e *Examination) { // a member at two addresses has one vote
			hold(e, 7, 8, 8)
			e.Readings[2].Status.Header.MemberId = 2
		}},
		{"versions", Warning, "a, c: 3.7.3; b: 3.6.0",
			func(e *Examination) { e.Readings[1].Status.Version = "3.6.0" }},
		{"versions", Warning, "a: 0.1.0; b: 0.2.0", func(e *Examination) {
			e.Readings[0].Metrics = metrics(t, healthy+"vigil_build_info{version=\"0.1.0\"} 1\n")
			e.Readings[1].Metrics = metrics(t, healthy+"vigil_build_info{version=\"0.2.0\"} 1\n")
		}},
		{"space", Warning, "90% of the quota",
			func(e *Examination) { e.Readings[1].Status.DbSizeInUse = 36; e.Readings[1].Status.DbSizeQuota = 40 }},
		{"space", Critical, "98% of the quota",
			func(e *Examination) { e.Readings[1].Status.DbSizeInUse = 98; e.Readings[1].Status.DbSizeQuota = 100 }},
		{"lag", Warning, "lags the leader by 9000 entries", func(e *Examination) {
			e.Readings[0].Status.RaftIndex = 9980 + 10
			e.Readings[1].Status.RaftAppliedIndex = 990
		}},
		{"lag", Critical, "b: does none of its work",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t,
					healthy+"vigil_member_stalled 1\n")
			}},
		{"lag", Note, "is a learner",
			func(e *Examination) { e.Readings[2].Status.IsLearner = true }},
		{"disk", Warning, "writing the raft log to the disk takes 63ms or more in one of 100 cases, of 2000 in the last 10m; below 10ms is good", func(e *Examination) { e.Readings[1].Metrics = metrics(t, slowDisk) }},
		{"disk", Critical, "takes 466ms or more in one of 10 cases", func(e *Examination) { // few, and nearly all are slow
			e.Readings[1].Metrics = metrics(t,
				strings.NewReplacer(" 1000\n", " 20\n", " 2000\n", " 120\n", "0.064",
					"0.528").Replace(slowDisk))
		}},
		{"disk", Warning, "50 of 100 writes were slow to apply in the last 10m",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t,
					"etcd_server_slow_apply_total 50\netcd_server_proposals_applied_total 100\n")
			}},
		{"network", Warning, "101 writes wait",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t,
					"etcd_server_proposals_pending 101\n")
			}},
		{"clocks", Warning, "c: its clock differs by 3s or more from that of a, b",
			func(e *Examination) {
				e.Clocks[2] = &Clock{Least: 4 * time.Second,
					Most: 5 * time.Second}
			}},
		{"clocks", Warning, "a: its clock differs by 3s or more from that of b, c",
			func(e *Examination) {
				e.Clocks[0] = &Clock{Least: 4 * time.Second,
					Most: 5 * time.Second}
			}},
		{"reachable", Critical, "c: does not answer at 10.0.0.3:2379: gone", func(e *Examination) {
			dead(e, 2)
			e.CertErrs[2] = &refusal{"remote error: tls: certificate required"}
		}},
		{"certificates", Critical,
			"a: its certificate for clients (--cert-file, CN=a) expired on 2030-01-01",
			func(e *Examination) {
				e.Expiries[0], e.Subjects = e.Now.Add(-24*time.Hour), []string{"CN=a"}
			}},
		{"certificates", Critical,
			"a: the certificate at 10.0.0.1:2379 (CN=proxy), which is not the member's, expired on 2030-01-01", func(e *Examination) {
				e.Expiries[0], e.Subjects = e.Now.Add(-24*time.Hour), []string{"CN=proxy"}
				e.Readings[0].Certificates = []Certificate{{Listener: "client", Use: "server",
					Subject: "CN=a", End: e.Now.Add(24 * 365 * time.Hour)}}
			}},
		{"certificates", Critical,
			"a: the authority of other members' certificates (--peer-trusted-ca-file, CN=ca) expires in 2d, on 2030-01-04", func(e *Examination) {
				e.Readings[0].Certificates = []Certificate{{Listener: "peer", Use: "authority",
					Subject: "CN=ca", End: e.Now.Add(48 * time.Hour)}}
			}},
		{"certificates", Warning,
			"a: its certificate for other members (generated, O=vigil) expires in 20d",
			func(e *Examination) {
				e.Readings[0].Certificates = []Certificate{{Listener: "peer", Use: "server",
					Subject: "O=vigil", End: e.Now.Add(20 * 24 * time.Hour), Generated: true}}
			}},
		{"certificates", Critical,
			"this program's certificate (--cert /c.pem, CN=admin) expired on 2030-01-01",
			func(e *Examination) {
				e.Files = []File{{Use: "this program's certificate", From: "--cert /c.pem",
					Subject: "CN=admin", End: e.Now.Add(-24 * time.Hour)}}
			}},
		{"certificates", Critical,
			"b: its certificate for other members (--peer-cert-file) expired on",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t,
					healthy+"vigil_certificate_expiry_timestamp_seconds{listener=\"peer\",use=\"server\"} 1.8e+09\n")
			}},
		{"certificates", Critical, "expires in 3d",
			func(e *Examination) { e.Expiries[0] = e.Now.Add(72 * time.Hour) }},
		{"certificates", Warning, "expires in 20d",
			func(e *Examination) { e.Expiries[0] = e.Now.Add(20 * 24 * time.Hour) }},
		{"watchers", Warning, "a watcher is 20000 revisions behind", func(e *Examination) {
			e.Readings[0].Metrics = metrics(t, "vigil_watch_largest_lag_revisions 20000\n")
		}},
		{"compaction", Warning, "1999000 revisions are kept; none was compacted since it started",
			func(e *Examination) {
				e.Readings[0].Metrics = metrics(t,
					"etcd_debugging_mvcc_current_revision 2000000\netcd_debugging_mvcc_compact_revision 1000\n")
			}},
		{"archive", Critical, "a: writes of the last 1m30s are not archived", func(e *Examination) {
			for i := range e.Readings {
				e.Readings[i].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 90.5\n")
			}
		}},
		{"archive", Critical, "b: it does not write to its archive", func(e *Examination) {
			e.Readings[0].Metrics,
				e.Readings[2].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\n"),
				metrics(t, healthy+"vigil_archive_lag_seconds 0\n")
			e.Readings[1].Metrics = metrics(t,
				healthy+"vigil_archive_lag_seconds 0\nvigil_archive_refused 1\n")
		}},
		{"archive", Warning, "c: it has no archive, and other members have one",
			func(e *Examination) {
				e.Readings[0].Metrics,
					e.Readings[1].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\n"),
					metrics(t, healthy+"vigil_archive_lag_seconds 0\n")
			}},
		{"archive", Warning, "b: it has not reached the archive for 1m40s", func(e *Examination) {
			e.Readings[0].Metrics,
				e.Readings[2].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\n"),
				metrics(t, healthy+"vigil_archive_lag_seconds 0\n")
			e.Readings[1].Metrics = metrics(t,
				healthy+"vigil_archive_lag_seconds 70\nvigil_archive_failing_seconds 100\n")
		}},
		{"archive", Warning, "b: it has found 2 gaps in the archive", func(e *Examination) {
			e.Readings[0].Metrics,
				e.Readings[2].Metrics = metrics(t, healthy+"vigil_archive_lag_seconds 0\n"),
				metrics(t, healthy+"vigil_archive_lag_seconds 0\n")
			e.Readings[1].Metrics = metrics(t,
				healthy+"vigil_archive_lag_seconds 0\nvigil_archive_gaps_total 2\n")
		}},
		{"settings", Warning,
			"members have different values of --quota-backend-bytes: a, c: 4194304; b: 4000",
			func(e *Examination) { e.Readings[1].Status.DbSizeQuota = 4000 }},
		{"settings", Warning,
			"members have different values of --max-request-bytes: a: 100; b, c: 200",
			func(e *Examination) {
				for i, v := range []string{"100", "200", "200"} {
					e.Flags[i] = map[string]string{"max-request-bytes": v}
				}
			}},
		{"settings", Warning, "members have different values of TLS for clients: a: on; b: off", func(e *Examination) { // c is older and does not tell
			e.Flags[0], e.Flags[1] = map[string]string{ClientTLS: "on"},
				map[string]string{ClientTLS: "off"}
		}},
		{"settings", Critical, "--unsafe-no-fsync",
			func(e *Examination) { e.Flags[0] = map[string]string{"unsafe-no-fsync": ""} }},
		{"settings", Warning, "--election-timeout of 500ms",
			func(e *Examination) { e.Flags[0] = map[string]string{"election-timeout": "500"} }},
		{"settings", Warning, "90 of 100 files", func(e *Examination) {
			e.Readings[0].Metrics = metrics(t, "process_open_fds 90\nprocess_max_fds 100\n")
		}},
	} {
		d := diagnose(t, c.bad)
		at := slices.IndexFunc(d.Findings,
			func(f Finding) bool {
				return f.Check == c.check &&
					strings.Contains(f.Member+": "+f.What, c.what)
			})
		if at < 0 || d.Findings[at].Severity != c.s || d.Findings[at].Next == "" {
			t.Errorf("%s, %q is not found in %+v", c.check, c.what, d.Findings)
		}
		if d.Healthy && c.s != Note || slices.Contains(d.Passed, c.check) {
			t.Errorf("%s, %q: healthy %v, passed %v", c.check, c.what, d.Healthy, d.Passed)
		}
	}
}

// TestQuorum compares what the check says of clusters of all sizes with what is so: a write needs a
// majority of the voting members.
func TestQuorum(t *testing.T) {
	writes := func(voters, alive int) bool { return 2*alive > voters }
	for voters := 1; voters <= 7; voters++ {
		for alive := 1; alive <= voters; alive++ {
			for learners := range 2 {
				d := diagnose(t, func(e *Examination) {
					n := voters + learners
					e.Members, e.Readings, e.Clocks, e.Expiries, e.CertErrs, e.Flags = nil, nil,
						make([]*Clock, n), make([]time.Time, n), make([]error, n),
						make([]map[string]string, n)
					for i := range n {
						id := uint64(i) + 1
						e.Members = append(e.Members,
							&etcdserverpb.Member{ID: id, Name: fmt.Sprint("m", id),
								IsLearner: i >= voters})
						e.Readings = append(e.Readings, healthyReading(id, e.Now))
						e.Readings[i].Status.IsLearner = i >= voters
						if !writes(voters, alive) {
							e.Readings[i].Status.Leader = 0
						}
					}
					for i := alive; i < voters; i++ {
						dead(e, i)
					}
				})
				survives := -1 // more failures
				for n := alive; writes(voters, n); n-- {
					survives++
				}
				var want []string
				switch down := voters - alive; {
				case survives < 0:
					want = append(want, fmt.Sprintf("critical %d of %d voting members answer and %d are needed: no write is possible", alive, voters, voters/2+1))
				case down > 0 && survives == 0:
					want = append(want, fmt.Sprintf("critical %d of %d voting members answer, the smallest quorum: if the others have failed, one more failure stops all writes", alive, voters))
				case down > 0:
					want = append(want, fmt.Sprintf("warning %d of %d voting members answer: if the others have failed, writes go on after %s, and no longer after another", alive, voters, amount.Count(survives, "more failure")))
				case voters == 1 && learners == 0:
					want = append(want, "note the cluster has one member: if it is lost, all writes since the last backup are lost")
				case voters == 1:
					want = append(want, "note the cluster has one voting member: if it fails, all writes stop")
				}
				if voters%2 == 0 {
					whole := map[int]string{2: "no failure", 4: "1 failure",
						6: "2 failures"}[voters]
					want = append(want, fmt.Sprintf("note %d voting members survive %s, as %d would", voters, whole, voters-1))
				}
				var got []string
				for _, f := range d.Findings {
					if f.Check == "quorum" {
						got = append(got, string(f.Severity)+" "+f.What)
						if promote := strings.Contains(f.Next,
							"member promote"); f.Severity == Note && promote != (learners > 0) {
							t.Errorf("%d voters, %d learners: %s", voters, learners, f.Next)
						}
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%d of %d voters, %d learners:\n%q, want\n%q", alive, voters,
						learners, got, want)
				}
			}
		}
	}
}

// TestNextSteps: a next step helps in the state in which it is given.
func TestNextSteps(t *testing.T) {
	const many = "etcd_debugging_mvcc_current_revision 2000000\netcd_debugging_mvcc_compact_revision 1000\n"
	for _, c := range []struct {
		what, next string
		bad        func(e *Examination)
	}{
		{"101 writes wait for agreement", "the load exceeds the capacity", func(e *Examination) {
			e.Readings[1].Metrics = metrics(t, healthy+"etcd_server_proposals_pending 101\n")
		}},
		{"101 writes wait for agreement", "they wait for a leader", func(e *Examination) {
			e.Readings[1].Metrics,
				e.Readings[1].Status.Leader = metrics(t,
				healthy+"etcd_server_proposals_pending 101\n"), 0
		}},
		{"1999000 revisions are kept", "start the members with --auto-compaction-retention",
			func(e *Examination) { e.Readings[1].Metrics = metrics(t, healthy+many) }},
		{"1999000 revisions are kept", "--auto-compaction-retention=240h is set",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t, healthy+many)
				e.Flags[1]["auto-compaction-retention"] = "240h"
			}},
	} {
		d := diagnose(t, c.bad)
		if !slices.ContainsFunc(d.Findings,
			func(f Finding) bool {
				return strings.Contains(f.What, c.what) &&
					strings.HasPrefix(f.Next, c.next)
			}) {
			t.Errorf("%s, %s: %+v", c.what, c.next, d.Findings)
		}
	}
}

// TestUnchecked: what was not looked at is never ok.
func TestUnchecked(t *testing.T) {
	few := metrics(t, strings.ReplaceAll(healthy, " 2000\n", " 12\n"))
	for _, c := range []struct {
		check, member, why string
		change             func(e *Examination)
	}{
		{"", "c", "it does not answer", func(e *Examination) { dead(e, 2) }},
		{"", "h:1", "its status is not known",
			func(e *Examination) {
				e.Readings[2] = Reading{Endpoint: "h:1",
					StatusErr: &refusal{"gone"}}
			}},
		{"", "b", "it is not among the endpoints", func(e *Examination) { only(e, 1) }},
		{"quorum", "", "b, c not asked: give the endpoints, or --cluster=true",
			func(e *Examination) { only(e, 1) }},
		{"data", "", "known of one member only: there is nothing to compare it with",
			func(e *Examination) { only(e, 1) }},
		{"data", "b", "could not be compared: slow",
			func(e *Examination) { hold(e, 7, 7, 7); e.Data[1] = Compared{Err: &refusal{"slow"}} }},
		{"data", "b", "its data are damaged", func(e *Examination) {
			hold(e, 7, 7, 7)
			e.Readings[1].Metrics = metrics(t, healthy+"vigil_damage_found_total 3\n")
		}},
		{"lag", "b", "the leader did not answer", func(e *Examination) { dead(e, 0) }},
		{"disk", "b", "12 writes of the raft log in the last 10m are too few",
			func(e *Examination) { e.Readings[1].Metrics = few }},
		{"disk", "b", "12 commits in the last 10m",
			func(e *Examination) { e.Readings[1].Metrics = few }},
		{"watchers", "b", "its metrics cannot be read",
			func(e *Examination) {
				e.Readings[1].Metrics, e.Readings[1].MetricsErr = nil,
					&refusal{"no"}
			}},
		{"full", "b", "its metrics cannot be read",
			func(e *Examination) {
				e.Readings[1].Metrics, e.Readings[1].MetricsErr = nil,
					&refusal{"no"}
			}},
		{"network", "b", "0 round trips",
			func(e *Examination) {
				e.Readings[1].Metrics = metrics(t,
					"vigil_watch_largest_lag_revisions 0\n")
			}},
		{"clocks", "b", "its time cannot be read", func(e *Examination) { e.Clocks[1] = nil }},
		{"certificates", "b", "its certificate cannot be read: no",
			func(e *Examination) { e.CertErrs[1] = &refusal{"no"} }},
		{"certificates", "", "open none.pem", func(e *Examination) {
			e.Files = []File{{From: "--cert none.pem",
				Err: &refusal{"open none.pem: no such file"}}}
		}},
		{"settings", "b", "its settings cannot be read", func(e *Examination) { e.Flags[1] = nil }},
		{"quorum", "", "the members are not known",
			func(e *Examination) { e.Members, e.ListErr = nil, &refusal{"no"} }},
	} {
		d := diagnose(t, c.change)
		if !slices.ContainsFunc(d.Unchecked, func(u Unchecked) bool {
			return u.Check == c.check && u.Member == c.member && strings.Contains(u.Why, c.why)
		}) {
			t.Errorf("%s of %s is not among the unchecked: %+v", c.check, c.member, d.Unchecked)
		}
		if slices.Contains(d.Passed, c.check) {
			t.Errorf("%s of %s: passed %v", c.check, c.member, d.Passed)
		}
	}
}

// TestPages: each page of a finding exists, and has the heading.
func TestPages(t *testing.T) {
	pages := map[string]bool{}
	for _, c := range checks {
		pages[c.Page] = true
	}
	names, _ := filepath.Glob("*.go")
	for _, name := range names {
		code, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range regexp.MustCompile(`"(docs/[^"]+)"`).FindAllStringSubmatch(string(code),
			-1) {
			pages[s[1]] = true
		}
	}
	for page := range pages {
		name, anchor, _ := strings.Cut(page, "#")
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Error(err)
			continue
		}
		found := anchor == ""
		for _, s := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text),
			-1) {
			plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(s[1]), "")
			found = found || strings.ReplaceAll(plain, " ", "-") == anchor
		}
		if !found {
			t.Errorf("%s has no such heading", page)
		}
	}
}

// TestRejectedTLS: no finding says to start a member that was reached, but not by TLS.
func TestRejectedTLS(t *testing.T) {
	for why, change := range map[string]func(e *Examination){
		"an alert":                func(e *Examination) { e.CertErrs[2] = &refusal{"remote error: tls: certificate required"} },
		"an expired certificate":  func(e *Examination) { e.Expiries[2] = e.Now.Add(-time.Hour) },
		"nothing":                 func(e *Examination) { e.CertErrs[2] = &refusal{"connection refused"} },
		"a certificate, no reply": func(e *Examination) { e.Expiries[2] = e.Now.Add(400 * 24 * time.Hour) },
	} {
		d := diagnose(t, func(e *Examination) {
			dead(e, 2)
			change(e)
		})
		runs := strings.Contains(d.Findings[0].Next,
			"it runs, and this program cannot make a TLS connection")
		if want := strings.HasPrefix(why, "an "); runs != want ||
			d.Findings[0].Check != "reachable" {
			t.Errorf("%s: %+v", why, d.Findings[0])
		}
	}
}

type refusal struct{ s string }

func (e *refusal) Error() string { return e.s }

func TestNoAnswers(t *testing.T) {
	d := diagnose(t, func(e *Examination) {
		for i := range e.Readings {
			e.Readings[i] = Reading{Endpoint: "h:1", StatusErr: &refusal{"gone"}}
		}
		e.Members = nil
	})
	if d.Healthy || len(d.Passed) > 0 || len(d.Unchecked) != 3 {
		t.Errorf("%+v", d)
	}
}

// TestLagMeanwhile: a member that has applied since what the leader had does not lag, although the
// answers seem to say so.
func TestLagMeanwhile(t *testing.T) {
	d := diagnose(t, func(e *Examination) {
		hold(e, 7, 7, 7)
		e.Readings[0].Status.RaftIndex, e.Readings[0].Status.RaftAppliedIndex = 20_000, 20_000
		e.Data[1].Later = &etcdserverpb.StatusResponse{Header: e.Readings[1].Status.Header,
			RaftAppliedIndex: 19_000}
		e.Data[2].Later = &etcdserverpb.StatusResponse{Header: e.Readings[2].Status.Header,
			RaftAppliedIndex: 2000}
	})
	if len(d.Findings) != 1 || d.Findings[0].Member != "c" ||
		!strings.Contains(d.Findings[0].What, "by 18000 entries") {
		t.Errorf("%+v", d.Findings)
	}
}

// TestLimits: a limit decides, and a check that is left out is not ok.
func TestLimits(t *testing.T) {
	d := diagnose(t, func(e *Examination) {
		e.Limits.Clock, e.Limits.Lag = 5*time.Second, 7
		e.Omit = map[string]string{"damage": "omitted"}
		e.Clocks[2] = &Clock{Least: 4 * time.Second, Most: 5 * time.Second}
		e.Readings[0].Metrics = metrics(t, healthy+"vigil_damage_found_total 3\n")
	})
	if len(d.Findings) != 2 || d.Findings[0].Check != "lag" || d.Findings[1].Member != "c" ||
		slices.Contains(d.Passed, "damage") || !slices.Contains(d.Passed, "clocks") {
		t.Errorf("%+v", d)
	}
}

// A member that accepts connections and does not answer may run: it is not to be started again.
func TestHungMember(t *testing.T) {
	for _, why := range []string{"accepts the connection and does not answer: check whether its process hangs or is stopped", "no answer in time",
		"http://10.0.0.3:2380: no answer to the handshake: read tcp 10.0.0.1:4->10.0.0.3:2380: i/o timeout"} {
		d := diagnose(t, func(e *Examination) {
			dead(e, 2)
			e.Readings[2].StatusErr = &refusal{why}
		})
		if got := findingsOf(d, "reachable", "c"); len(got) != 1 || got[0].Next != nextHung {
			t.Errorf("%s: %+v", why, got)
		}
	}
}

// TestPastedCommands: the address of a member, which may have been chosen by another one, is one
// word in a command line to paste.
func TestPastedCommands(t *testing.T) {
	const at = "http://[::1%$(reboot)]:2379"
	for next, lines := range map[string]string{
		"find it: vigilctl watchers --sort lag --endpoints '" + at +
			"'": strings.Replace(healthy, "lag_revisions 0", "lag_revisions 9e9", 1),
		"vigilctl defrag --endpoints '" + at + "' at a time of low load: ": strings.Replace(healthy,
			"vigil_watch_largest_lag_revisions 0\n", "", 1),
	} {
		d := diagnose(t, func(e *Examination) {
			x := &e.Readings[1]
			x.Endpoint, x.Metrics, x.Status.DbSize = at, metrics(t, lines), 3<<30
		})
		if !slices.ContainsFunc(d.Findings,
			func(f Finding) bool { return strings.HasPrefix(f.Next, next) }) {
			t.Errorf("no finding has %q: %+v", next, d.Findings)
		}
	}
}
