package doctor

import (
	"time"

	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/survey"
)

// Limits of the checks. Those of disks are from etcd's documentation: 10 ms for the raft log, 25 ms for the store, at the
// 99th percentile.
const (
	fsyncSlow       = 10 * time.Millisecond
	fsyncVerySlow   = 100 * time.Millisecond
	commitSlow      = 25 * time.Millisecond
	applySlow       = 100 * time.Millisecond
	peerSlow        = 100 * time.Millisecond
	minObservations = 20 // fewer observations give no percentile
	clockDifference = time.Second
	expiryWarning   = 30 * 24 * time.Hour
	expiryCritical  = 7 * 24 * time.Hour
	quotaHigh       = 0.8
	quotaCritical   = 0.95
	largeQuota      = 8 << 30 // above it etcd logs a warning when it starts
	lagHigh         = 5000    // entries
	watchLagHigh    = 10_000  // revisions
	pendingHigh     = 100
	leadersAnHour   = 3
	revisionsHigh   = 1_000_000 // revisions
	freeHigh        = 100 << 20 // bytes
	openFilesHigh   = 0.8
)

// examination is all answers of the members.
type examination struct {
	*survey.Round
	now      time.Time
	clocks   []*probe.Clock // by member; nil if not known
	expiries []time.Time    // of certificates, by member; zero without TLS
	lines    [][]string     // command lines, by member; nil if not known
	files    []string       // --cert and --cacert
	data     []compared     // by member
}

// checks are the checks in order of importance.
var checks = []struct {
	name, about string
	run         func(*examination, reportFunc)
}{
	{"reachable", "every member answers", (*examination).checkReachable},
	{"leader", "all agree on a leader", (*examination).checkLeader},
	{"quorum", "the cluster survives the loss of a member", (*examination).checkQuorum},
	{"alarms", "no alarm is raised", (*examination).checkAlarms},
	{"data", "the members hold the same data", (*examination).checkData},
	{"versions", "all members have one version", (*examination).checkVersions},
	{"space", "no quota is nearly used", (*examination).checkQuota},
	{"lag", "no member lags far", (*examination).checkLag},
	{"disk", "the disks are fast", (*examination).checkDisks},
	{"network", "the network is fast, and the leader stable", (*examination).checkNetwork},
	{"clocks", "clocks agree", (*examination).checkClocks},
	{"certificates", "no certificate expires soon", (*examination).checkCertificates},
	{"watchers", "watchers keep up", (*examination).checkWatchers},
	{"compaction", "old revisions are compacted", (*examination).checkCompaction},
	{"settings", "no setting is known to be harmful", (*examination).checkSettings},
}

// examine runs all checks.
func (e *examination) examine() (found []finding, passed []string) {
	answered := e.Answered()
	for _, c := range checks {
		if !answered && c.name != "reachable" && c.name != "certificates" {
			continue // without answers
		}
		before := len(found)
		c.run(e, func(s severity, member, what, next string) {
			found = append(found, finding{s, c.name, member, what, next})
		})
		if len(found) == before {
			passed = append(passed, c.name)
		}
	}
	return found, passed
}

// reportFunc adds a finding.
type reportFunc = func(s severity, member, what, next string)
