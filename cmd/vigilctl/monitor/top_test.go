package monitor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/screen"
	"vigil/internal/debugpage"
	"vigil/internal/health"
)

// newReading returns a reading of a member that follows member 1.
func newReading(t *testing.T, id uint64, at time.Time, puts, fsyncs int) health.Reading {
	t.Helper()
	m, err := health.ParseMetrics(strings.NewReader(fmt.Sprintf(`# TYPE etcd_mvcc_put_total counter
etcd_mvcc_put_total %d
# TYPE etcd_mvcc_txn_total counter
etcd_mvcc_txn_total 0
# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} %d
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} %d
etcd_disk_wal_fsync_duration_seconds_sum %g
etcd_disk_wal_fsync_duration_seconds_count %d
`, puts, fsyncs, fsyncs, float64(fsyncs)*0.0004, fsyncs)))
	if err != nil {
		t.Fatal(err)
	}
	return health.Reading{Endpoint: fmt.Sprintf("10.0.0.%d:2379", id), At: at, Metrics: m,
		Status: &etcdserverpb.StatusResponse{
			Header: &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: id, RaftTerm: 4,
				Revision: 900}, Version: "3.7.3", Leader: 1,
			RaftIndex: 1000, RaftAppliedIndex: 1000 - 10*(id-1), DbSize: 3 << 20,
			DbSizeInUse: 1 << 20,
			DbSizeQuota: 4 << 20}}
}

func twoRounds(t *testing.T) (old, now *health.Round) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	members := []*etcdserverpb.Member{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}}
	down := health.Reading{Endpoint: "10.0.0.3:2379", StatusErr: errors.New("connection\nrefused"),
		MetricsErr: errors.New("too"), Advertised: 3}
	old = &health.Round{At: start, Members: members,
		Readings: []health.Reading{newReading(t, 1, start, 10, 0),
			newReading(t, 2, start, 500, 7), down}}
	later := start.Add(2 * time.Second)
	now = &health.Round{At: later, Members: members,
		Readings: []health.Reading{newReading(t, 1, later, 210, 100),
			newReading(t, 2, later, 3, 7), down},
		Alarms: []*etcdserverpb.AlarmMember{{MemberID: 2, Alarm: etcdserverpb.AlarmType_NOSPACE}}}
	return old, now
}

func TestTopPicture(t *testing.T) {
	old, now := twoRounds(t)
	want := `3 members  leader a  term 4  revision 900  03:04:07
a second:  100 puts  0 ranges  0 txns  0 watch events
ALARMS: NOSPACE on b

MEMBER  ROLE      LAG  PUT/S  RANGE/S  TXN/S  EVENT/S  FSYNC avg/99%  APPLY avg/99%  COMMIT avg/99%       DB  USED  WATCHERS  MEMORY  VERSION  ENDPOINT
a       leader      0    100        -      0        -    400µs/990µs              -               -  3.0 MiB   75%         -       -  3.7.3    10.0.0.1:2379
b       follower   10      -        -      0        -              -              -               -  3.0 MiB   75%         -       -  3.7.3    10.0.0.2:2379
c       down        -      -        -      -        -              -              -               -      0 B     -         -       -  -        10.0.0.3:2379
c (10.0.0.3:2379): connection refused`
	if got := strings.Join(draw(now, old, 0, screen.Paint{}), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	narrow := `3 members  leader a  term 4
revision 900  03:04:07
a second:  100 puts  0 ranges  0 txns
0 watch events
ALARMS: NOSPACE on b

MEMBER  ROLE      LAG  PUT/S
a       leader      0    100
b       follower   10      -
c       down        -      -
c (10.0.0.3:2379): connection refused`
	if got := strings.Join(draw(now, old, 40, screen.Paint{}), "\n"); got != narrow {
		t.Errorf("got\n%s\nwant\n%s", got, narrow)
	}
}

// TestChoice: keys sort, select and show members.
func TestChoice(t *testing.T) {
	old, now := twoRounds(t)
	list := summarize(now, old).Members
	c := choice{selected: list[0].Endpoint}
	endpoints := func() (out []string) {
		for _, i := range c.sorted(list) {
			out = append(out, list[i].Endpoint)
		}
		return out
	}
	press := func(keys ...screen.Key) {
		t.Helper()
		for _, k := range keys {
			if c.handleKey(k, endpoints()) {
				t.Fatalf("%s quits", k)
			}
		}
	}
	picture := func() string {
		return strings.Join(drawChosen(now, old, 60,
			screen.Paint{}, &c), "\n")
	}
	if got := picture(); !strings.Contains(got, "\n> a ") || !strings.Contains(got, "\n  b ") ||
		!strings.Contains(got, "sort name  ? help") {
		t.Error(got)
	}
	press("s") // by lag: b lags
	if got := picture(); strings.Index(got, "> a ") < strings.Index(got, "  b ") ||
		!strings.Contains(got, "sort lag") {
		t.Error(got)
	}
	press("k", screen.Enter) // above a is b
	if c.selected != "10.0.0.2:2379" || !c.detail {
		t.Errorf("%+v", c)
	}
	text := strings.Join(drawMember(now, old, 1, &reading{}, 60, screen.Paint{}), "\n")
	if !strings.HasPrefix(text, "b  10.0.0.2:2379  follower") ||
		!strings.HasSuffix(text, "reading its watchers …") {
		t.Error(text)
	}
	press(screen.Back, "S", screen.Down, screen.Down, screen.Down, "?")
	if c.selected != "10.0.0.3:2379" || c.detail || !c.help || c.order != 0 {
		t.Errorf("%+v", c)
	}
	for _, k := range []screen.Key{"q", screen.Break} {
		if !c.handleKey(k, nil) {
			t.Errorf("%s does not quit", k)
		}
	}
}

// TestTopIsSafe: a member chooses its name and version, and a terminal acts on none of their
// characters.
func TestTopIsSafe(t *testing.T) {
	const hostile = "\x1b[2J\u009b2J\xff\r\n\u202e"
	old, now := twoRounds(t)
	for _, r := range []*health.Round{old, now} {
		for _, m := range r.Members {
			m.Name = hostile
		}
		for i := range r.Readings {
			if s := r.Readings[i].Status; s != nil {
				s.Version, s.Errors = hostile, []string{hostile}
			}
		}
		r.Readings[2].StatusErr, r.ListErr = errors.New(hostile), errors.New(hostile)
	}
	endpoint := now.Readings[0].Endpoint
	failed := &reading{of: endpoint, err: errors.New(hostile)}
	watched := &reading{of: endpoint,
		watchers: &watcherList{Matching: 1,
			Failed: []failedMember{{Member: hostile, Reason: hostile}},
			Watchers: []watched{{Member: hostile,
				Watcher: debugpage.Watcher{Key: hostile, End: hostile, State: hostile,
					Client: hostile, User: hostile, Options: []string{hostile}}}}}}
	for name, lines := range map[string][]string{
		"all":      drawChosen(now, old, 0, screen.Paint{}, nil),
		"chosen":   drawChosen(now, old, 80, screen.Paint{}, &choice{selected: endpoint}),
		"one":      drawMember(now, old, 0, failed, 80, screen.Paint{}),
		"watchers": drawMember(now, old, 0, watched, 0, screen.Paint{}),
	} {
		for _, l := range lines {
			if !utf8.ValidString(l) || strings.ContainsFunc(l, screen.Steers) {
				t.Errorf("%s: %q", name, l)
			}
		}
	}
}
