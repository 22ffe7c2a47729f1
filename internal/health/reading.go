package health

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Reading is the answer of one member.
type Reading struct {
	Endpoint   string
	At         time.Time
	Status     *etcdserverpb.StatusResponse // nil if StatusErr is set
	StatusErr  error
	Metrics    Metrics // nil if MetricsErr is set
	MetricsErr error
	// PagesOf is the member whose pages were read at the endpoint if it differs from the member in
	// Status: then a load balancer is in front. See CheckPages.
	PagesOf uint64
	// Waits is set if the member is alive but does not serve clients yet.
	Waits *Wait
	// Failures are the known reasons why the member cannot send messages to others.
	Failures []PeerFailure
	// Recent has the member's recent counts, the shortest window first; nil if unknown.
	Recent []Window
	// Certificates are the known certificates that the member uses.
	Certificates []Certificate
	// ByPeer is set if another member has queried this one over the connections between members.
	// Endpoint was not tried.
	ByPeer bool
	// Advertised is the ID of the member that advertises the endpoint, 0 if unknown.
	Advertised uint64
}

// ID returns the member's ID, 0 if it did not answer.
func (x *Reading) ID() uint64 { return x.Status.GetHeader().GetMemberId() }

// CheckPages removes metrics that belong to another member than Status.
func (x *Reading) CheckPages() {
	for _, labels := range x.Metrics.Labels(ServerID) {
		if id, err := strconv.ParseUint(labels["server_id"], 16, 64); err == nil &&
			x.ID() != 0 && id != x.ID() {
			x.PagesOf, x.Metrics, x.MetricsErr = id, nil,
				fmt.Errorf("those of member %x were read at %s: a load balancer is in front of it",
					id, x.Endpoint)
			return
		}
	}
}

// DiskFull returns what the member cannot do because its disk is full, empty if the disk is not
// full. waits is set if nothing proceeds that needs a majority's agreement. etcd does not report
// this.
func (x *Reading) DiskFull() (what string, waits bool) {
	n := x.Status.GetRaftIndex() - min(x.Status.GetRaftAppliedIndex(), x.Status.GetRaftIndex())
	switch {
	case x.Value(RaftLogWaits) != 0 && x.Value(ApplyWaits) != 0 && n > 0:
		return fmt.Sprintf("its disk is full, %d committed entries wait, and its raft log takes no others: it acknowledges nothing, no deletions and compactions either", n), true
	case x.Value(RaftLogWaits) != 0:
		return "its disk is full, and its raft log takes no entries: it acknowledges nothing, no deletions and compactions either", true
	case x.Value(ApplyWaits) != 0 && n > 0:
		return fmt.Sprintf("its disk is full, and %d committed entries wait: deletions, compactions and linearizable reads fail too", n), true
	case x.Value(ApplyWaits) != 0:
		return "its disk is full, and it applies nothing: deletions, compactions and linearizable reads fail too", true
	case x.Value(DiskFull) != 0:
		return "its disk is full: it rejects puts; reads, deletions and compactions proceed", false
	}
	return "", false
}

// Stands reports whether the member has stalled: for an election timeout it has neither written
// pending entries to its raft log nor applied any, although its disk is not full. etcd does not
// report this.
func (x *Reading) Stands() bool {
	return x.Value(Stalled) != 0 && x.Value(DiskFull) == 0 && x.Value(DataFilesGone) == 0
}

// FilesGone returns which files of the member are missing from their paths, empty if none are. etcd
// does not notice.
func (x *Reading) FilesGone() string {
	for _, text := range x.Status.GetErrors() {
		if what, ok := strings.CutPrefix(text,
			"vigil: files of the data directory are gone: "); ok {
			return what
		}
	}
	return ""
}

// Value returns a metric, 0 if the member does not have it.
func (x *Reading) Value(name string) float64 {
	v, _ := x.Metrics.Value(name)
	return v
}

// IsVigil reports whether the member is Vigil, not etcd.
func (x *Reading) IsVigil() bool {
	_, ok := x.Metrics.Value(LargestWatcherLag)
	return ok
}

// Program returns the version of the member's program, empty if unknown. The version in Status is
// the API level.
func (x *Reading) Program() string {
	for _, labels := range x.Metrics.Labels(BuildInfo) {
		return labels["version"]
	}
	return ""
}

// Certificate is a certificate that a member uses. For several authorities it is the one that is
// valid longest.
type Certificate struct {
	Listener string    `json:"listener"` // "client" or "peer"
	Use      string    `json:"use"`      // "server", "client" or "authority"
	Subject  string    `json:"subject,omitempty"`
	End      time.Time `json:"end"`
	// Generated is set if the member has generated the certificate.
	Generated bool `json:"generated,omitempty"`
}

// certificates returns the known certificates of the member. Older versions report only their
// expiry.
func (x *Reading) certificates() []Certificate {
	if len(x.Certificates) > 0 {
		return x.Certificates
	}
	var out []Certificate
	for value, labels := range x.Metrics.Labels(CertificateExpiry) {
		out = append(out, Certificate{Listener: labels["listener"], Use: labels["use"],
			End: time.Unix(int64(value), 0)})
	}
	return out
}

// Rate returns the growth of a counter per second since an older reading. ok is false if it is
// unknown or the member has restarted.
func (x *Reading) Rate(old *Reading, name string) (perSecond float64, ok bool) {
	if old == nil {
		return 0, false
	}
	before, ok := old.Metrics.Value(name)
	now, ok2 := x.Metrics.Value(name)
	seconds := x.At.Sub(old.At).Seconds()
	if !ok || !ok2 || now < before || seconds <= 0 {
		return 0, false
	}
	perSecond = (now - before) / seconds
	return perSecond, !math.IsInf(perSecond, 0)
}

// Latency returns the histogram of the observations since an older reading, empty without one.
func (x *Reading) Latency(old *Reading, name string) Histogram {
	if old == nil {
		return Histogram{}
	}
	return x.Metrics.Histogram(name).Since(old.Metrics.Histogram(name))
}

// Role returns the member's role in the cluster.
func (x *Reading) Role() string {
	switch {
	case x.Waits != nil:
		return "waits"
	case x.Status == nil:
		return "down"
	case x.Status.IsLearner:
		return "learner"
	case x.Status.Leader == 0:
		return "no leader"
	case x.Status.Leader == x.ID():
		return "leader"
	}
	return "follower"
}

// Quota returns the member's quota in bytes, 0 if unknown.
func (x *Reading) Quota() int64 {
	if q := x.Status.GetDbSizeQuota(); q != 0 || x.Status == nil {
		return q
	}
	return int64(x.Value(QuotaBytes)) // older than etcd 3.6
}

// QuotaUsed returns the bytes that count against the quota: live data in Vigil, the file in etcd.
func (x *Reading) QuotaUsed() int64 {
	if x.IsVigil() {
		return x.Status.GetDbSizeInUse()
	}
	return x.Status.GetDbSize()
}
