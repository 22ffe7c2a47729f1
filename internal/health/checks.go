package health

import (
	"slices"
	"strings"
	"time"
)

// Examination has the answers of all members, which the checks evaluate. The lists by member have
// the order of Readings.
type Examination struct {
	*Round
	Now      time.Time
	Clocks   []*Clock    // nil if unknown
	Expiries []time.Time // of the certificates that the members present; zero without TLS
	CertErrs []error     // why an expiry is unknown
	Subjects []string    // of the certificates of Expiries; may be nil
	// Flags are the flags of each member's start, by name without dashes; nil if unknown.
	Flags  []map[string]string
	Files  []File // certificates of the client
	Data   []Compared
	Limits Limits
	// Omit has the checks to omit, each with the reason.
	Omit map[string]string
}

// Check is one check of all members.
type Check struct {
	// About is true if the check finds nothing.
	Name, About string
	// Page explains the check's findings.
	Page string
	// Cluster is set if the result is about the cluster, not about each member.
	Cluster bool

	run func(*Examination, *report)
}

// Checks returns the checks in order of importance.
func Checks() []Check { return slices.Clone(checks) }

// checks are the checks in order of importance.
var checks = []Check{
	{"reachable", "every member answers", "docs/operations/observe.md#vigilmemberdown", true,
		(*Examination).checkReachable},
	{"leader", "all agree on a leader", "docs/operations/observe.md#vigilnoleader", false,
		(*Examination).checkLeader},
	{"quorum", "the cluster survives the loss of a member",
		"docs/operations/observe.md#vigilquorumatrisk", true, (*Examination).checkQuorum},
	{"alarms", "no alarm is raised", "docs/operations/observe.md#vigilalarm", false,
		(*Examination).checkAlarms},
	{"full", "no disk is full", "docs/operations/disks.md#the-disk-is-full", false,
		(*Examination).checkFull},
	{"damage", "no damaged data were found",
		"docs/operations/corruption.md#data-on-disk-are-damaged",
		false, (*Examination).checkDamage},
	{"data", "the members hold the same data", "docs/operations/corruption.md", false,
		(*Examination).checkData},
	{"versions", "all members have one version", "docs/operations/upgrade.md", false,
		(*Examination).checkVersions},
	{"space", "no quota is nearly used", "docs/operations/disks.md#the-data-reach-the-quota", false,
		(*Examination).checkQuota},
	{"lag", "no member lags far", "docs/operations/observe.md#vigilapplylags", false,
		(*Examination).checkLag},
	{"disk", "the disks are fast", "docs/operations/observe.md#vigilslowsync", false,
		(*Examination).checkDisks},
	{"network", "the network is fast, and the leader stable",
		"docs/operations/observe.md#vigilpeerslow", false, (*Examination).checkNetwork},
	{"clocks", "clocks agree", "docs/operations/observe.md#clocks-that-differ", false,
		(*Examination).checkClocks},
	{"certificates", "no certificate expires soon",
		"docs/operations/security.md#replacing-files", false,
		(*Examination).checkCertificates},
	{"watchers", "watchers keep up", "docs/operations/observe.md#vigilwatcherslag", false,
		(*Examination).checkWatchers},
	{"compaction", "old revisions are compacted", "docs/operations/space.md#compact-automatically",
		false, (*Examination).checkCompaction},
	{"archive", "the archive, if there is one, is complete",
		"docs/operations/observe.md#vigilarchivelags", false, (*Examination).checkArchive},
	{"settings", "no setting is known to be harmful", "docs/operations/configuration.md", false,
		(*Examination).checkSettings},
}

// Diagnosis is the result of all checks.
type Diagnosis struct {
	Healthy bool   `json:"healthy"` // nothing was found except notes
	Cluster string `json:"cluster_id"`
	Members int    `json:"members"`
	Leader  string `json:"leader"`
	// Findings are sorted by severity.
	Findings []Finding `json:"findings"`
	// Passed are the checks without findings in the members that answer.
	Passed    []string    `json:"passed"`
	Unchecked []Unchecked `json:"not_checked"`

	// Seen are the members that answer, if some do not.
	Seen []string `json:"-"`
}

// Diagnose runs all checks.
func (e *Examination) Diagnose() *Diagnosis {
	id, _ := e.Cluster()
	d := &Diagnosis{Healthy: true, Cluster: hexadecimal(id), Members: len(e.Members)}
	if leader := e.Leader(); leader != 0 {
		d.Leader = e.Name(leader)
	}
	d.Findings, d.Passed, d.Unchecked = e.examine()
	// Lists that are never null are easier to read for programs.
	d.Findings, d.Passed, d.Unchecked = append([]Finding{}, d.Findings...),
		append([]string{}, d.Passed...), append([]Unchecked{}, d.Unchecked...)
	for i := range e.Readings {
		if x := &e.Readings[i]; x.Status != nil {
			d.Seen = append(d.Seen, e.NameOf(x))
		}
	}
	if !slices.ContainsFunc(d.Unchecked, func(u Unchecked) bool { return u.Check == "" }) {
		d.Seen = nil
	}
	rank := map[Severity]int{Critical: 0, Warning: 1, Note: 2}
	slices.SortStableFunc(d.Findings,
		func(a, b Finding) int { return rank[a.Severity] - rank[b.Severity] })
	for _, f := range d.Findings {
		d.Healthy = d.Healthy && f.Severity == Note
	}
	return d
}

// examine runs all checks. A check passes if it has covered everything and found nothing, except in
// members that do not answer: those are unchecked as a whole.
func (e *Examination) examine() (found []Finding, passed []string, skipped []Unchecked) {
	r := report{unchecked: e.unseen()}
	answered := e.Answered()
	for i := range checks {
		r.check = &checks[i]
		if !answered && r.check.Name != "reachable" && r.check.Name != "certificates" {
			continue // without answers
		}
		if why := e.Omit[r.check.Name]; why != "" {
			r.skipMember("", why)
			continue
		}
		before, gaps := len(r.findings), len(r.unchecked)
		r.check.run(e, &r)
		if len(r.findings) == before && len(r.unchecked) == gaps &&
			(answered || r.check.Name == "certificates" && len(e.Files) > 0) {
			passed = append(passed, r.check.Name)
		}
	}
	return r.findings, passed, r.unchecked
}

// line returns an error on one line.
func line(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// noMetrics is the reason for missing data that only a member's metrics contain.
const noMetrics = "its metrics cannot be read"

// measured calls f for each reading with metrics, and lists the other members as unchecked.
func (e *Examination) measured(r *report, f func(x *Reading, name string)) {
	for i := range e.Readings {
		switch x := &e.Readings[i]; {
		case x.Metrics != nil:
			f(x, e.NameOf(x))
		case x.Status != nil:
			r.skipMember(e.NameOf(x), noMetrics)
		}
	}
}
