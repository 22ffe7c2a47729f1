package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/probe"
)

// The metrics that are looked at. Members of etcd have them under the same names, those of Vigil's own excepted.
const (
	metricPuts        = "etcd_mvcc_put_total"
	metricRanges      = "etcd_mvcc_range_total"
	metricTxns        = "etcd_mvcc_txn_total"
	metricDeletes     = "etcd_mvcc_delete_total"
	metricEvents      = "etcd_debugging_mvcc_events_total"
	metricWatchers    = "etcd_debugging_mvcc_watcher_total"
	metricSlowWatch   = "etcd_debugging_mvcc_slow_watcher_total"
	metricPendingEv   = "etcd_debugging_mvcc_pending_events_total"
	metricRevision    = "etcd_debugging_mvcc_current_revision"
	metricCompacted   = "etcd_debugging_mvcc_compact_revision"
	metricCompactedAt = "etcd_debugging_mvcc_db_compaction_last"
	metricFsync       = "etcd_disk_wal_fsync_duration_seconds"
	metricCommit      = "etcd_disk_backend_commit_duration_seconds"
	metricApply       = "etcd_server_apply_duration_seconds"
	metricRoundTrip   = "etcd_network_peer_round_trip_time_seconds"
	metricSlowApply   = "etcd_server_slow_apply_total"
	metricApplied     = "etcd_server_proposals_applied_total"
	metricPending     = "etcd_server_proposals_pending"
	metricLeaders     = "etcd_server_leader_changes_seen_total"
	metricFiles       = "process_open_fds"
	metricMaxFiles    = "process_max_fds"
	metricMemory      = "process_resident_memory_bytes"
	metricStarted     = "process_start_time_seconds"
	metricLag         = "vigil_watch_largest_lag_revisions" // only Vigil has it
)

// reading is what one member told at one time.
type reading struct {
	endpoint   string
	at         time.Time
	status     *etcdserverpb.StatusResponse // nil if statusErr is not
	statusErr  error
	metrics    probe.Metrics // nil if metricsErr is not
	metricsErr error
	took       time.Duration // of the status
}

// round is what all members told at about the same time.
type round struct {
	at       time.Time
	readings []reading
	members  []*etcdserverpb.Member // as the cluster knows them; nil if nobody could say
	alarms   []*etcdserverpb.AlarmMember
	listErr  error // why members or alarms are not known
}

// read asks all members.
func (l *looking) read(ctx context.Context) *round {
	r := &round{at: time.Now(), readings: make([]reading, len(l.members))}
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		ctx, cancel := context.WithTimeout(ctx, l.timeout())
		defer cancel()
		// What a member without a quorum knows is worth knowing.
		m, err := l.client.MemberListSerializable(ctx)
		if err != nil {
			r.listErr = err
			return
		}
		r.members = m.Members
		if a, err := l.client.Alarms(ctx); err != nil {
			r.listErr = err
		} else {
			r.alarms = a.Alarms
		}
	}()
	l.each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		x := reading{endpoint: m.Endpoint}
		start := time.Now()
		x.status, x.statusErr = l.status(ctx, m)
		x.took = time.Since(start)
		x.metrics, x.metricsErr = m.Metrics(ctx)
		x.at = time.Now()
		r.readings[i] = x
	})
	<-listed
	return r
}

// id is the member's id, 0 if it could not be asked.
func (x *reading) id() uint64 { return x.status.GetHeader().GetMemberId() }

// value returns a metric, 0 if the member has not told it.
func (x *reading) value(name string) float64 {
	v, _ := x.metrics.Value(name)
	return v
}

// isVigil tells whether the member is one of this project.
func (x *reading) isVigil() bool {
	_, ok := x.metrics.Value(metricLag)
	return ok
}

// rate is how much a counter has grown a second between two readings; ok is false if that cannot be said.
func (x *reading) rate(old *reading, name string) (perSecond float64, ok bool) {
	if old == nil {
		return 0, false
	}
	before, ok := old.metrics.Value(name)
	now, ok2 := x.metrics.Value(name)
	seconds := x.at.Sub(old.at).Seconds()
	if !ok || !ok2 || now < before || seconds <= 0 {
		return 0, false // the member was started again
	}
	return (now - before) / seconds, true
}

// latency is the histogram of what came since an older reading, or ever if nothing has come since.
func (x *reading) latency(old *reading, name string) probe.Histogram {
	h := x.metrics.Histogram(name)
	if old == nil {
		return h
	}
	if d := h.Since(old.metrics.Histogram(name)); d.Count > 0 {
		return d
	}
	return h
}

// leader is the member that most say leads, 0 if none.
func (r *round) leader() uint64 {
	votes := map[uint64]int{}
	var best uint64
	for i := range r.readings {
		if id := r.readings[i].status.GetLeader(); id != 0 {
			votes[id]++
			if votes[id] > votes[best] {
				best = id
			}
		}
	}
	return best
}

// name is what to call a member.
func (r *round) name(id uint64) string {
	for _, m := range r.members {
		if m.ID == id && m.Name != "" {
			return m.Name
		}
	}
	return fmt.Sprintf("%x", id)
}

// called is what to call the member of a reading.
func (r *round) called(x *reading) string {
	if id := x.id(); id != 0 {
		return r.name(id)
	}
	return x.endpoint
}

// lag is how many entries a member has still to apply of what the leader has; ok is false if that is not known.
func (r *round) lag(x *reading) (entries int64, ok bool) {
	leader := r.leader()
	if leader == 0 || x.status == nil {
		return 0, false
	}
	for i := range r.readings {
		if l := &r.readings[i]; l.id() == leader {
			// They were not asked at the same instant: a follower may seem to be ahead.
			return max(0, int64(l.status.RaftIndex)-int64(x.status.RaftAppliedIndex)), true
		}
	}
	return 0, false
}

// revision is the newest that any member is at, as far as headers tell.
func (r *round) revision() int64 {
	var rev int64
	for i := range r.readings {
		rev = max(rev, r.readings[i].status.GetHeader().GetRevision())
	}
	return rev
}

// role is what part a member has in the cluster.
func (x *reading) role() string {
	switch {
	case x.status == nil:
		return "down"
	case x.status.IsLearner:
		return "learner"
	case x.status.Leader == 0:
		return "no leader"
	case x.status.Leader == x.id():
		return "leader"
	}
	return "follower"
}

// alarmTexts are the alarms by the names of the members that they are about.
func (r *round) alarmTexts() []string {
	var list []string
	for _, a := range r.alarms {
		list = append(list, fmt.Sprintf("%s on %s", a.Alarm, r.name(a.MemberID)))
	}
	slices.Sort(list)
	return list
}

// seconds prints a duration shortly: 3 digits at most.
func seconds(s float64) string {
	for _, u := range []struct {
		least float64
		name  string
	}{{1, "s"}, {1e-3, "ms"}, {0, "µs"}} {
		if s >= u.least {
			v := s / cmp.Or(u.least, 1e-6)
			if v < 9.95 {
				return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") + u.name
			}
			return fmt.Sprintf("%.0f%s", v, u.name)
		}
	}
	return "0s"
}

// perSecond prints a rate shortly.
func perSecond(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 9.95:
		return fmt.Sprintf("%.1f", v)
	case v < 9999.5:
		return fmt.Sprintf("%.0f", v)
	case v < 999.5e3:
		return fmt.Sprintf("%.0fk", v/1e3)
	}
	return fmt.Sprintf("%.1fM", v/1e6)
}

// percent prints a share.
func percent(part, whole float64) string {
	if whole <= 0 || math.IsNaN(part) {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*part/whole)
}
