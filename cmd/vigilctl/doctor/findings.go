package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/survey"
)

// severity is how bad a finding is.
type severity string

const (
	critical severity = "critical" // something does not work, or soon will not
	warning  severity = "warning"  // something will, if nobody does anything
	note     severity = "note"     // worth knowing
)

// finding is something that a person should know, and what to do.
type finding struct {
	Severity severity `json:"severity"`
	Check    string   `json:"check"`
	Member   string   `json:"member,omitempty"`
	What     string   `json:"what"`
	Next     string   `json:"next"`
}

// Limits of the examination. Those of disks are what etcd's documentation asks for: 10 ms for the raft log, 25 ms for the
// store, at the 99th percentile.
const (
	fsyncSlow      = 10 * time.Millisecond
	fsyncVerySlow  = 100 * time.Millisecond
	commitSlow     = 25 * time.Millisecond
	applySlow      = 100 * time.Millisecond
	peerSlow       = 100 * time.Millisecond
	leastTimes     = 20 // observations below which a percentile says nothing
	clockApart     = time.Second
	certificateLow = 30 * 24 * time.Hour
	certificateEnd = 7 * 24 * time.Hour
	quotaHigh      = 0.8
	quotaFull      = 0.95
	largeQuota     = 8 << 30 // beyond it etcd itself warns when it starts
	lagHigh        = 5000    // entries
	watchLagHigh   = 10_000  // revisions
	pendingHigh    = 100
	leadersAnHour  = 3
	uncompacted    = 1_000_000 // revisions
	fragmented     = 100 << 20 // bytes
	filesHigh      = 0.8
)

// examined is all that was asked.
type examined struct {
	*survey.Round
	now    time.Time
	clocks []*probe.Clock // by member; nil if it is not known
	ends   []time.Time    // of certificates, by member; zero without TLS
	lines  [][]string     // command lines, by member; nil if they are not known
	files  []string       // --cert and --cacert
	data   []compared     // by member
}

// checks are the parts of an examination, in the order in which they matter.
var checks = []struct {
	name, about string
	run         func(*examined, func(s severity, member, what, next string))
}{
	{"reachable", "every member answers", (*examined).reachable},
	{"leader", "all agree on a leader", (*examined).leading},
	{"quorum", "enough members are there to lose one", (*examined).quorum},
	{"alarms", "no alarm is raised", (*examined).alarmed},
	{"data", "the members hold the same data", (*examined).agree},
	{"versions", "all members have one version", (*examined).versions},
	{"space", "the quota is far", (*examined).space},
	{"lag", "no member is far behind", (*examined).lags},
	{"disk", "the disks are fast", (*examined).disks},
	{"network", "members hear of each other soon, and keep their leader", (*examined).network},
	{"clocks", "clocks agree", (*examined).time},
	{"certificates", "no certificate ends soon", (*examined).certificates},
	{"watchers", "watchers keep up", (*examined).watchers},
	{"compaction", "old revisions are compacted", (*examined).compaction},
	{"settings", "no setting is known to hurt", (*examined).settings},
}

// examine makes all checks.
func (e *examined) examine() (found []finding, passed []string) {
	answered := e.Answered()
	for _, c := range checks {
		if !answered && c.name != "reachable" && c.name != "certificates" {
			continue // nothing is known
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

type report = func(s severity, member, what, next string)

func (e *examined) reachable(found report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		switch {
		case x.StatusErr != nil:
			found(critical, x.Endpoint, "does not answer: "+survey.ErrorLine(x.StatusErr),
				"see whether its process runs and what its log says; if it does, whether this address leads to it from here")
		case x.MetricsErr != nil:
			found(note, e.NameOf(x), "its metrics cannot be read, so not everything could be looked at: "+survey.ErrorLine(x.MetricsErr),
				"let this machine read /metrics on the client port")
		}
	}
	for _, m := range e.Members {
		if m.Name == "" {
			found(warning, fmt.Sprintf("%x", m.ID), "was added and has never started", "start it with --initial-cluster-state existing, or remove it: vigilctl member remove "+fmt.Sprintf("%x", m.ID))
		} else if !e.asked(m.ID) && !e.anyDown() {
			found(note, m.Name, "was not looked at: it is not among the endpoints", "give --cluster, or add "+strings.Join(m.ClientURLs, ",")+" to --endpoints")
		}
	}
	if e.Members == nil && e.ListErr != nil {
		found(warning, "", "the list of members is not known: "+survey.ErrorLine(e.ListErr), "give --user if authentication is enabled")
	}
}

func (e *examined) asked(id uint64) bool {
	for i := range e.Readings {
		if e.Readings[i].ID() == id {
			return true
		}
	}
	return false
}

// anyDown tells that a member that does not seem to be among the endpoints may be one that does not answer.
func (e *examined) anyDown() bool {
	for i := range e.Readings {
		if e.Readings[i].Status == nil {
			return true
		}
	}
	return false
}

func (e *examined) leading(found report) {
	leader, clusters := e.Leader(), map[uint64]string{}
	for i := range e.Readings {
		x := &e.Readings[i]
		if x.Status == nil {
			continue
		}
		if id := x.Status.Header.ClusterId; len(clusters) > 0 && clusters[id] == "" {
			found(critical, e.NameOf(x), fmt.Sprintf("belongs to another cluster, %x", id), "give endpoints of one cluster; what follows compares members of several")
		}
		clusters[x.Status.Header.ClusterId] = x.Endpoint
		switch {
		case x.Status.Leader == 0:
			found(critical, e.NameOf(x), "has no leader: it takes no writes", "see whether a majority of members runs and can reach each other on their peer ports")
		case x.Status.Leader != leader:
			found(warning, e.NameOf(x), "follows another leader than the others: "+e.Name(x.Status.Leader), "look again; if it stays, see whether it is cut off from the others")
		}
	}
}

func (e *examined) quorum(found report) {
	voters, there := 0, 0
	for _, m := range e.Members {
		if m.IsLearner {
			continue
		}
		voters++
		if e.asked(m.ID) {
			there++
		}
	}
	need := voters/2 + 1
	switch {
	case voters == 0:
		return
	case voters == 1:
		found(note, "", "the cluster has one member: if it is lost, so is everything since the last backup", "add two members, or make backups: vigilctl snapshot save")
	case e.anyDown() && there < need:
		found(critical, "", fmt.Sprintf("%d of %d voting members answer and %d are needed: nothing can be written", there, voters, need), "bring a member back; only if it is lost for good restore a backup")
	case e.anyDown() && there == need:
		found(critical, "", fmt.Sprintf("%d of %d voting members answer, as many as are needed: one loss more stops all writes", there, voters), "bring the others back first of all")
	case voters%2 == 0:
		found(note, "", fmt.Sprintf("%d voting members bear the loss of as many as %d do", voters, voters-1), "add or remove one")
	}
}

func (e *examined) alarmed(found report) {
	next := map[etcdserverpb.AlarmType]string{
		etcdserverpb.AlarmType_NOSPACE: "delete what is not needed, then: vigilctl compaction REVISION; with etcd also: vigilctl defrag, vigilctl alarm disarm; or start the members with a higher --quota-backend-bytes",
		etcdserverpb.AlarmType_CORRUPT: "its data differ from the others': remove the member, delete its data directory and add it again",
	}
	for _, a := range e.Alarms {
		found(critical, e.Name(a.MemberID), "alarm "+a.Alarm.String(), next[a.Alarm])
	}
	for i := range e.Readings {
		x := &e.Readings[i]
		for _, text := range x.Status.GetErrors() {
			if e.Alarms == nil {
				found(critical, e.NameOf(x), text, "see its log")
			}
		}
	}
}

func (e *examined) versions(found report) {
	seen := map[string][]string{}
	for i := range e.Readings {
		if x := &e.Readings[i]; x.Status != nil {
			seen[x.Status.Version] = append(seen[x.Status.Version], e.NameOf(x))
			if d := x.Status.DowngradeInfo; d.GetEnabled() {
				found(note, e.NameOf(x), "a downgrade to "+d.TargetVersion+" is under way", "finish it, or: vigilctl downgrade cancel")
			}
		}
	}
	if len(seen) > 1 {
		var list []string
		for v, names := range seen {
			list = append(list, strings.Join(names, ", ")+": "+v)
		}
		found(warning, "", "members have different versions: "+sorted(list), "finish the upgrade: one member after the other")
	}
}

func (e *examined) space(found report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		if x.Status == nil {
			continue
		}
		quota, file, inUse := x.Quota(), x.Status.DbSize, x.Status.DbSizeInUse
		if used := float64(x.QuotaUsed()) / float64(max(quota, 1)); quota > 0 && used >= quotaHigh {
			s := warning
			if used >= quotaFull {
				s = critical
			}
			found(s, e.NameOf(x), fmt.Sprintf("%.0f%% of the quota of %s are used; at 100%% puts are refused", 100*used, screen.Bytes(quota)), "see what takes the space: vigilctl tree --sizes; delete, compact, or raise --quota-backend-bytes")
		}
		if !x.IsVigil() && file-inUse > fragmented && file > 2*inUse {
			found(note, e.NameOf(x), fmt.Sprintf("%s of the %s of its database are free", screen.Bytes(file-inUse), screen.Bytes(file)), "vigilctl defrag --endpoints "+x.Endpoint+" when there is little to do: it stops the member meanwhile")
		}
	}
}

func (e *examined) lags(found report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		if n, ok := e.Lag(x); ok && n > lagHigh {
			found(warning, e.NameOf(x), fmt.Sprintf("is %d entries behind the leader", n), "see its disk, its processor and the network to the leader; vigilctl top shows whether it catches up")
		}
		if x.Status.GetIsLearner() {
			found(note, e.NameOf(x), "is a learner: it does not vote", fmt.Sprintf("when it has caught up: vigilctl member promote %x", x.ID()))
		}
	}
}

func (e *examined) disks(found report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		for _, c := range []struct {
			metric, what string
			slow, very   time.Duration
			next         string
		}{
			{survey.WALFsync, "writing the raft log to the disk", fsyncSlow, fsyncVerySlow, "give the raft log a disk of its own (--wal-dir), an SSD; see who else writes to it: iostat -x 1"},
			{survey.StoreCommit, "committing to the store", commitSlow, 0, "see who else writes to the disk: iostat -x 1"},
			{survey.Apply, "carrying out a write", applySlow, 0, "look for large transactions and ranges: --warning-apply-duration names them in the log"},
		} {
			h := x.Metrics.Histogram(c.metric)
			p99, ok := h.Quantile(0.99)
			if !ok || h.Count < leastTimes || p99 <= c.slow.Seconds() {
				continue
			}
			s := warning
			if c.very > 0 && p99 > c.very.Seconds() {
				s = critical
			}
			found(s, e.NameOf(x), fmt.Sprintf("%s takes %s or more in one of 100 cases since it started; below %v is good", c.what, screen.Seconds(p99), c.slow), c.next)
		}
		if slow, all := x.Value(survey.SlowApplies), x.Value(survey.AppliedProposals); slow > 10 && slow > all/100 {
			found(warning, e.NameOf(x), fmt.Sprintf("%.0f of %.0f writes were slow to be carried out", slow, all), "its log names them: took too long")
		}
	}
}

func (e *examined) network(found report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		h := x.Metrics.Histogram(survey.PeerRoundTrip)
		if p99, ok := h.Quantile(0.99); ok && h.Count >= leastTimes && p99 > peerSlow.Seconds() {
			found(warning, e.NameOf(x), fmt.Sprintf("other members take %s or more to answer it in one of 100 cases", screen.Seconds(p99)), "see the network between the members; if it cannot be faster raise --heartbeat-interval and --election-timeout on all")
		}
		up := e.now.Sub(time.Unix(int64(x.Value(survey.StartTime)), 0)).Hours()
		if n := x.Value(survey.LeaderChanges); x.Metrics != nil && up > 0 && n > 5 && n/max(up, 1) > leadersAnHour {
			found(warning, e.NameOf(x), fmt.Sprintf("has seen %.0f changes of the leader in %s", n, screen.Age(time.Duration(up*float64(time.Hour)))), "see disks, processors and network: a leader that is late by --election-timeout is replaced")
		}
		if n := x.Value(survey.PendingProposals); n > pendingHigh {
			found(warning, e.NameOf(x), fmt.Sprintf("%.0f writes wait for the cluster to agree on them", n), "the cluster takes fewer writes than it gets: see disks and network, or let clients write less")
		}
	}
}

func (e *examined) time(found report) {
	for i := range e.clocks {
		for j := range e.clocks[:i] {
			if e.clocks[i] == nil || e.clocks[j] == nil {
				continue
			}
			if off := e.clocks[i].Off(*e.clocks[j]); off >= clockApart {
				found(warning, e.NameOf(&e.Readings[i]), fmt.Sprintf("its clock differs by %v or more from that of %s", off.Round(100*time.Millisecond), e.NameOf(&e.Readings[j])),
					"see whether time is synchronised on both: timedatectl. Tokens and certificates depend on it, and logs that are compared")
			}
		}
	}
}

func (e *examined) certificates(found report) {
	say := func(member, what string, end time.Time, next string) {
		left := end.Sub(e.now)
		switch {
		case left <= 0:
			found(critical, member, what+" ended on "+end.Format(time.DateOnly), next)
		case left < certificateEnd:
			found(critical, member, fmt.Sprintf("%s ends in %s", what, screen.Age(left)), next)
		case left < certificateLow:
			found(warning, member, fmt.Sprintf("%s ends in %s", what, screen.Age(left)), next)
		}
	}
	for i, end := range e.ends {
		if !end.IsZero() {
			say(e.NameOf(&e.Readings[i]), "its certificate", end, "replace the file of --cert-file: it is read again without a restart")
		}
	}
	for _, name := range e.files {
		if end, err := firstEnd(name); err == nil {
			say("", "the certificate in "+name, end, "replace the file")
		}
	}
}

// firstEnd is when the first of the certificates in a file ends.
func firstEnd(name string) (end time.Time, err error) {
	rest, err := os.ReadFile(name)
	for err == nil {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			continue
		}
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(b.Bytes); err == nil && (end.IsZero() || c.NotAfter.Before(end)) {
			end = c.NotAfter
		}
	}
	if err == nil && end.IsZero() {
		err = fmt.Errorf("%s: no certificate", name)
	}
	return end, err
}

func (e *examined) watchers(found report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		if lag := x.Value(survey.LargestWatcherLag); lag > watchLagHigh {
			found(warning, e.NameOf(x), fmt.Sprintf("a watcher is %.0f revisions behind", lag), "see whose: vigilctl watchers --sort lag --endpoints "+x.Endpoint)
		}
		if slow, waiting := x.Value(survey.SlowWatchers), x.Value(survey.PendingEvents); !x.IsVigil() && (slow > 0 && slow >= x.Value(survey.Watchers)/2 || waiting > watchLagHigh) {
			found(warning, e.NameOf(x), fmt.Sprintf("%.0f watchers do not keep up and %.0f events wait", slow, waiting), "see what its clients do, and whether they read their watches")
		}
	}
}

func (e *examined) compaction(found report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		kept := x.Value(survey.CurrentRevision) - max(0, x.Value(survey.CompactRevision))
		if kept < uncompacted {
			continue
		}
		when := "never since it was started"
		if at := x.Value(survey.CompactedAt); at > 0 {
			when = screen.Age(e.now.Sub(time.Unix(int64(at), 0))) + " ago"
		}
		found(warning, e.NameOf(x), fmt.Sprintf("%.0f revisions are kept; the last compaction was %s", kept, when), "start the members with --auto-compaction-retention, or: vigilctl compaction REVISION")
	}
}

func (e *examined) settings(found report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		name := e.NameOf(x)
		if open, most := x.Value(survey.OpenFiles), x.Value(survey.MaxFiles); most > 0 && open > filesHigh*most {
			found(warning, name, fmt.Sprintf("%.0f of %.0f files are open; connections are files, too", open, most), "raise LimitNOFILE of its service")
		}
		if quota := x.Quota(); !x.IsVigil() && quota > largeQuota {
			found(warning, name, fmt.Sprintf("a quota of %s is more than etcd is made for", screen.Bytes(quota)), "stay at 8 GiB")
		}
		flags := flagsOf(e.lines[i])
		if v, ok := flags["unsafe-no-fsync"]; ok && v != "false" {
			found(critical, name, "--unsafe-no-fsync: a crash loses what clients were told is stored", "leave it out")
		}
		beat, err := time.ParseDuration(flags["heartbeat-interval"] + "ms")
		if err != nil {
			beat = 100 * time.Millisecond
		}
		if election, err := time.ParseDuration(flags["election-timeout"] + "ms"); err == nil && election < 10*beat {
			found(warning, name, fmt.Sprintf("--election-timeout of %v is less than ten times the --heartbeat-interval of %v: leaders are replaced for a short pause", election, beat), "raise it to ten times")
		}
		if v, ok := flags["pre-vote"]; ok && v == "false" {
			found(note, name, "--pre-vote=false: a member that comes back can unseat the leader", "leave it out")
		}
	}
}

// flagsOf returns the flags of a command line.
func flagsOf(line []string) map[string]string {
	flags := map[string]string{}
	for i, s := range line {
		name, ok := strings.CutPrefix(s, "-")
		if !ok || i == 0 {
			continue
		}
		name, value, given := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !given && i+1 < len(line) && !strings.HasPrefix(line[i+1], "-") {
			value = line[i+1]
		}
		flags[name] = value
	}
	return flags
}
