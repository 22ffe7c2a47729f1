package health

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// load is what a member has counted since its start.
// syncs of 0.5 ms, 50 ms and 6 s; changes of the leader
type load struct{ fast, slow, verySlow, changes int }

func (l load) metrics(t *testing.T) Metrics {
	n := l.fast + l.slow
	return metrics(t, fmt.Sprintf(`# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"} %d
etcd_disk_wal_fsync_duration_seconds_bucket{le="0.064"} %d
etcd_disk_wal_fsync_duration_seconds_bucket{le="8.192"} %d
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} %d
etcd_disk_wal_fsync_duration_seconds_sum %f
etcd_disk_wal_fsync_duration_seconds_count %d
etcd_server_leader_changes_seen_total %d
vigil_watch_largest_lag_revisions 0
`, l.fast, n, n+l.verySlow, n+l.verySlow, 0.0005*float64(l.fast)+0.05*float64(l.slow)+6*float64(l.verySlow), n+l.verySlow, l.changes))
}

// lived returns the windows of a member after phases of minutes, each with its load in a minute.
func lived(t *testing.T, phases ...phase) []Window {
	t.Helper()
	start := time.Unix(1e9, 0)
	h, now, all := NewHistory(start), start, load{}
	for _, p := range phases {
		for range p.minutes {
			now = now.Add(RecordInterval)
			all = load{all.fast + p.fast, all.slow + p.slow, all.verySlow + p.verySlow,
				all.changes + p.changes}
			h.Record(now, all.metrics(t))
		}
	}
	return h.Recent(now, all.metrics(t))
}

type phase struct {
	minutes int
	load
}

// TestRecent: a slow phase is found while it lasts and not for ever, and what was seen is named
// with its number and its time.
func TestRecent(t *testing.T) {
	const none = ""
	for _, c := range []struct {
		name   string
		phases []phase
		want   string // of member a, without the limit
	}{
		{"fast", []phase{{90, load{fast: 2000}}}, none},
		{"slow from the start", []phase{{1, load{slow: 2000}}},
			"in one of 100 cases, of 2000 in the last 60s"},
		{"slow two minutes ago", []phase{{90, load{slow: 2000}}, {2, load{fast: 2000}}}, none},
		{"slow for the last minute, after a day",
			[]phase{{1440, load{fast: 60_000}}, {1, load{slow: 1200}}},
			"or more in one of 100 cases, of 1200 in the last 60s"},
		{"slow now and with few writes for it",
			[]phase{{90, load{fast: 60_000}}, {1, load{slow: 300}}},
			"or more in one of 10 cases, of 300 in the last 60s"},
		{"so slow that it writes seldom",
			[]phase{{90, load{fast: 60_000}}, {1, load{verySlow: 10}}},
			"takes 6s on average, of 10 in the last 60s"},
		{"quiet, and slow", []phase{{90, load{slow: 20}}},
			"or more in one of 10 cases, of 200 in the last 10m"},
		{"very quiet, and slow", []phase{{90, load{slow: 3}}},
			"or more in one of 10 cases, of 180 in the last 60m"},
		{"quiet, and fast again", []phase{{90, load{slow: 200}}, {60, load{fast: 5}}}, none},
	} {
		windows := lived(t, c.phases...)
		d := diagnose(t, func(e *Examination) { e.Readings[0].Recent = windows })
		i := slices.IndexFunc(d.Findings,
			func(f Finding) bool { return f.Check == "disk" && f.Member == "a" })
		switch {
		case c.want == none && i >= 0:
			t.Errorf("%s: %s", c.name, d.Findings[i].What)
		case c.want != none && (i < 0 || !strings.Contains(d.Findings[i].What, c.want)):
			t.Errorf("%s: %+v, want %s", c.name, d.Findings, c.want)
		}
	}
}

// TestRecentLeaderChanges: changes of the leader are those of the last hour.
func TestRecentLeaderChanges(t *testing.T) {
	for changed, phases := range map[bool][]phase{
		true:  {{1440, load{}}, {10, load{changes: 1}}},
		false: {{10, load{changes: 3}}, {61, load{}}},
	} {
		windows := lived(t, phases...)
		d := diagnose(t, func(e *Examination) { e.Readings[0].Recent = windows })
		found := slices.ContainsFunc(d.Findings,
			func(f Finding) bool { return f.What == "has seen 10 changes of the leader in the last 60m" })
		if found != changed {
			t.Errorf("%v: %+v", phases, d.Findings)
		}
	}
}

// TestNotRecent: a member that tells only what it has counted since its start is judged by two
// looks, or by its whole life if that is short; a phase of its past is a note.
func TestNotRecent(t *testing.T) {
	look := func(old, now load) Window {
		w := Between(old.metrics(t), now.metrics(t), 2*time.Second)
		w.Watched = true
		return w
	}
	slow := load{slow: 5000}
	for _, c := range []struct {
		name       string
		up         time.Duration
		now        load
		s          Severity
		found, gap string
	}{
		{"slow once", 30 * 24 * time.Hour, slow, Note,
			"took 63ms or more in one of 100 cases since it started; whether it still does is not known", "0 writes of the raft log in the 2s between two looks are too few"},
		{"slow now", 30 * 24 * time.Hour, load{slow: 5500}, Warning,
			"takes 58ms or more in one of 10 cases, of 500 in the 2s between two looks", ""},
		{"slow, and young", 30 * time.Minute, slow, Warning,
			"takes 63ms or more in one of 100 cases, of 5000 since it started 30m ago", ""},
	} {
		d := diagnose(t, func(e *Examination) {
			x := &e.Readings[0]
			x.Metrics = c.now.metrics(t)
			for name, f := range metrics(t,
				fmt.Sprintf("process_start_time_seconds %d\n", e.Now.Add(-c.up).Unix())) {
				x.Metrics[name] = f
			}
			x.Recent = []Window{look(slow, c.now)}
		})
		if !slices.ContainsFunc(d.Findings, func(f Finding) bool {
			return f.Check == "disk" && f.Severity == c.s && strings.Contains(f.What, c.found)
		}) {
			t.Errorf("%s: %+v", c.name, d.Findings)
		}
		if c.gap != "" && !slices.ContainsFunc(d.Unchecked,
			func(u Unchecked) bool { return u.Check == "disk" && strings.Contains(u.Why, c.gap) }) {
			t.Errorf("%s: %+v", c.name, d.Unchecked)
		}
		stable := !slices.ContainsFunc(d.Unchecked,
			func(u Unchecked) bool {
				return strings.Contains(u.Why,
					"how often the leader changes is not known")
			})
		if want := c.up <= time.Hour; stable != want {
			t.Errorf("%s: %+v", c.name, d.Unchecked)
		}
	}
}

// TestHistory: windows are as long as the member has run, and what one counts is never more than
// all.
func TestHistory(t *testing.T) {
	for minutes, want := range map[int][]float64{0: {30}, 1: {90}, 5: {90, 330},
		30: {90, 630, 1830}, 600: {90, 630, 3630}} {
		start := time.Unix(1e9, 0)
		h, m := NewHistory(start), load{fast: 7}.metrics(t)
		for i := range minutes {
			h.Record(start.Add(time.Duration(i+1)*RecordInterval), m)
		}
		var got []float64
		for _, w := range h.Recent(start.Add(time.Duration(minutes)*RecordInterval+30*time.Second),
			m) {
			got = append(got, w.Seconds)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d minutes: %v, want %v", minutes, got, want)
		}
		if len(h.mu.past) > maxRecords {
			t.Errorf("%d records", len(h.mu.past))
		}
	}
	// Another member sends anything.
	var odd []Window
	if err := json.Unmarshal([]byte(`[{"seconds":-1,"histograms":{"etcd_disk_wal_fsync_duration_seconds":{"bounds":[1],"up_to":[],"count":2000}},"counters":null},{}]`), &odd); err != nil {
		t.Fatal(err)
	}
	diagnose(t, func(e *Examination) {
		e.Readings[0].Recent, e.Readings[1].Recent = odd, []Window{}
	})
}
