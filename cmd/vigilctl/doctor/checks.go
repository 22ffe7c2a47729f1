package doctor

import (
	"slices"
	"time"

	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/survey"
)

// examination is all answers of the members.
type examination struct {
	*survey.Round
	now      time.Time
	clocks   []*probe.Clock // by member; nil if not known
	expiries []time.Time    // of certificates, by member; zero without TLS
	lines    [][]string     // command lines, by member; nil if not known
	certErrs []error        // why an expiry is not known, by member
	files    []string       // --cert and --cacert
	data     []compared     // by member
	limits   limits
	omit     []string // the names of checks that are not made
}

// check is one check of all members.
type check struct {
	name, about string
	// page explains its findings.
	page string
	// cluster is set if the result is about the cluster, not about each member.
	cluster bool
	run     func(*examination, *report)
}

// checks are the checks in order of importance.
var checks = []check{
	{"reachable", "every member answers", "docs/operations/observe.md#vigilmemberdown", true, (*examination).checkReachable},
	{"leader", "all agree on a leader", "docs/operations/observe.md#vigilnoleader", false, (*examination).checkLeader},
	{"quorum", "the cluster survives the loss of a member", "docs/operations/observe.md#vigilquorumatrisk", true, (*examination).checkQuorum},
	{"alarms", "no alarm is raised", "docs/operations/observe.md#vigilalarm", false, (*examination).checkAlarms},
	{"full", "no disk is full", "docs/operations/disks.md#the-disk-is-full", false, (*examination).checkFull},
	{"damage", "no damaged data were found", "docs/operations/disks.md#data-on-disk-are-damaged", false, (*examination).checkDamage},
	{"data", "the members hold the same data", "docs/operations/corruption.md", false, (*examination).checkData},
	{"versions", "all members have one version", "docs/operations/cluster.md#upgrade", false, (*examination).checkVersions},
	{"space", "no quota is nearly used", "docs/operations/disks.md#the-data-reach-the-quota", false, (*examination).checkQuota},
	{"lag", "no member lags far", "docs/operations/observe.md#vigilapplylags", false, (*examination).checkLag},
	{"disk", "the disks are fast", "docs/operations/observe.md#vigilslowsync", false, (*examination).checkDisks},
	{"network", "the network is fast, and the leader stable", "docs/operations/observe.md#vigilpeerslow", false, (*examination).checkNetwork},
	{"clocks", "clocks agree", "docs/operations/observe.md#clocks-that-differ", false, (*examination).checkClocks},
	{"certificates", "no certificate expires soon", "docs/operations/tls.md#replacing-files", false, (*examination).checkCertificates},
	{"watchers", "watchers keep up", "docs/operations/observe.md#vigilwatcherslag", false, (*examination).checkWatchers},
	{"compaction", "old revisions are compacted", "docs/operations/space.md#compact-automatically", false, (*examination).checkCompaction},
	{"archive", "the archive, if there is one, is complete", "docs/operations/observe.md#vigilarchivelags", false, (*examination).checkArchive},
	{"settings", "no setting is known to be harmful", "docs/operations/configuration.md", false, (*examination).checkSettings},
}

// examine runs all checks. A check has passed if it has looked at everything, and found nothing but in members that do
// not answer: those are unchecked as a whole.
func (e *examination) examine() (found []finding, passed []string, skipped []unchecked) {
	r := report{unchecked: e.unseen()}
	answered := e.Answered()
	for i := range checks {
		r.check = &checks[i]
		if !answered && r.check.name != "reachable" && r.check.name != "certificates" {
			continue // without answers
		}
		if slices.Contains(e.omit, r.check.name) {
			r.skip("", "omitted by --skip")
			continue
		}
		before, gaps := len(r.findings), len(r.unchecked)
		r.check.run(e, &r)
		if len(r.findings) == before && len(r.unchecked) == gaps && (answered || r.check.name == "certificates" && len(e.files) > 0) {
			passed = append(passed, r.check.name)
		}
	}
	return r.findings, passed, r.unchecked
}

// measured calls f for each reading with metrics. The others are unchecked.
func (e *examination) measured(r *report, f func(x *survey.Reading, name string)) {
	for i := range e.Readings {
		switch x := &e.Readings[i]; {
		case x.Metrics != nil:
			f(x, e.NameOf(x))
		case x.Status != nil:
			r.skip(e.NameOf(x), "its metrics cannot be read")
		}
	}
}
