package health

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/amount"
)

func (e *Examination) checkReachable(r *report) {
	refused := e.rejections()
	for i := range e.Readings {
		x := &e.Readings[i]
		switch {
		case x.Waits != nil:
			next, page := x.Waits.nextStep()
			what := x.Waits.Alive()
			if x.ID() == 0 && x.Advertised == 0 {
				what = "is alive at " + x.Endpoint + ", and " + x.Waits.String()
			}
			r.addFinding(Critical, e.NameOf(x), what, next, page)
		case errors.Is(x.StatusErr, ErrNoLogin):
			r.addFinding(Critical, e.NameOf(x),
				"is alive, and knows no leader: nobody can log in, and it tells its status to users only", nextQuorum, "docs/operations/backup.md#the-majority-is-lost")
		case NeedsUser(x.StatusErr):
			r.addFinding(Critical, e.NameOf(x), "answers users only: authentication is enabled",
				"give --user; the comparison of data needs a user with the role root",
				"docs/operations/auth.md")
		case x.StatusErr != nil:
			at := "does not answer: "
			if x.ByPeer {
				at = "does not answer this member: "
			} else if e.NameOf(x) != x.Endpoint {
				at = "does not answer at " + x.Endpoint + ": "
			}
			next, page := "check its process and its log, and start it again with its data directory, which loses nothing; if it runs, check that this machine can reach the address", ""
			why := line(x.StatusErr)
			if hangs(why) {
				why, _, _ = strings.Cut(why, ": check whether ")
				next, page = nextHung, "docs/operations/disks.md#the-disk-hangs-or-is-slow"
			}
			if e.rejectedTLS(i) {
				next, page = "it runs, and this program cannot make a TLS connection to it: check the certificates of both, and --cacert, --cert and --key here", "docs/operations/security.md"
			}
			if list := refused[hexadecimal(x.Advertised)]; len(list) > 0 {
				next, page = list[0].next, list[0].page
			}
			r.addFinding(Critical, e.NameOf(x), at+why, next, page)
		case x.MetricsErr != nil:
			next := "allow this machine to read /metrics on the client port"
			if x.PagesOf != 0 {
				next = "give the addresses of the members themselves in --endpoints"
			}
			r.addFinding(Note, e.NameOf(x),
				"its metrics cannot be read: "+line(x.MetricsErr), next, "")
		}
	}
	e.checkRefused(r)
	e.checkDetours(r)
	for _, m := range e.Members {
		if m.Name != "" && e.silent(m) && len(refused[hexadecimal(m.ID)]) == 0 {
			r.addFinding(Critical, m.Name,
				"has never reached the cluster: its address for clients is not known",
				"check its process and its log. If the cluster was restored from a backup, restore this member from the same file, with the same --initial-cluster and --initial-cluster-token", "docs/operations/cluster.md#when-a-member-does-not-start-or-join")
		}
		if m.Name == "" {
			r.addFinding(Warning, fmt.Sprintf("%x", m.ID), "was added and never started",
				"start it with --initial-cluster-state existing, or remove it: vigilctl member remove "+fmt.Sprintf("%x", m.ID), "docs/operations/cluster.md#grow")
		}
	}
	e.checkNames(r)
	if !e.Answered() && !e.rejected() && !e.anyRejectedTLS() {
		what := "no endpoint answers, so nothing else is known of the cluster"
		if slices.ContainsFunc(e.Readings, func(x Reading) bool { return x.Waits != nil }) {
			what = "no endpoint serves clients, so nothing else is known of the cluster"
		}
		r.addFinding(Critical, "", what,
			"give --endpoints of all members, and look at their processes and logs on their own machines. If all are down: "+nextQuorum, "docs/operations/backup.md#the-majority-is-lost")
	}
	if e.Members == nil && e.ListErr != nil && e.Answered() {
		r.addFinding(Warning, "", "the list of members is not known: "+line(e.ListErr),
			"give --user if authentication is enabled", "docs/operations/auth.md")
	}
}

// nextHung advises about a member that may be running: its process was not checked.
const nextHung = "its process hangs or is stopped, or the network to it stalls: look at its log and at the state of its process (in ps, T is stopped and D waits for a disk). Restart it only if it does not go on by itself: if its disk hangs, a restart hangs too"

// hangs reports whether the error means that a member was, or may have been, reached but did not
// answer in time.
func hangs(why string) bool {
	return strings.Contains(why, "accepts the connection and does not answer") ||
		strings.HasSuffix(why, "no answer in time") ||
		strings.Contains(why, "no answer to the handshake") && strings.HasSuffix(why, "i/o timeout")
}

// rejected reports whether a member has answered that it requires a user.
func (e *Examination) rejected() bool {
	return slices.ContainsFunc(e.Readings,
		func(x Reading) bool {
			return NeedsUser(x.StatusErr) ||
				errors.Is(x.StatusErr, ErrNoLogin)
		})
}

// rejectedTLS reports whether a member was reached, but without a TLS connection.
func (e *Examination) rejectedTLS(i int) bool {
	err, end := e.CertErrs[i], e.Expiries[i]
	return err != nil && strings.Contains(err.Error(), "tls: ") ||
		!end.IsZero() && end.Before(e.Now)
}

func (e *Examination) anyRejectedTLS() bool {
	for i := range e.Readings {
		if e.rejectedTLS(i) {
			return true
		}
	}
	return false
}

// ErrNoLogin is the reason why a member was queried without a user.
var ErrNoLogin = errors.New("there was no leader, so that nobody could log in")

// NeedsUser reports whether a cluster with users was queried without one.
func NeedsUser(err error) bool {
	return err != nil && strings.Contains(err.Error(), "etcdserver: user name is empty")
}

// reading returns the reading of a member, nil if it was not queried.
func (e *Examination) reading(m *etcdserverpb.Member) *Reading {
	for i := range e.Readings {
		if x := &e.Readings[i]; x.ID() == m.ID || (x.Status == nil || e.Foreign(x)) &&
			x.Advertised == m.ID {
			return x
		}
	}
	return nil
}

// silent reports whether a member has never announced its addresses for clients.
func (e *Examination) silent(m *etcdserverpb.Member) bool {
	return len(m.ClientURLs) == 0 && e.reading(m) == nil && e.asked()
}

// asked reports whether all members with known addresses were queried.
func (e *Examination) asked() bool {
	return !slices.ContainsFunc(e.Members,
		func(m *etcdserverpb.Member) bool { return len(m.ClientURLs) > 0 && e.reading(m) == nil })
}

// unseen returns the members that no check has covered, with the reason.
func (e *Examination) unseen() (out []Unchecked) {
	for _, m := range e.Members {
		switch x := e.reading(m); {
		case m.Name != "" && e.silent(m):
			out = append(out, Unchecked{Member: m.Name, Why: "its address is not known"})
		case x == nil && m.Name != "":
			out = append(out, Unchecked{Member: m.Name, Why: "it is not among the endpoints"})
		case x != nil && x.Status == nil && x.Waits != nil:
			out = append(out, Unchecked{Member: m.Name, Why: "it waits"})
		case x != nil && errors.Is(x.StatusErr, ErrNoLogin):
			out = append(out, Unchecked{Member: m.Name, Why: ErrNoLogin.Error()})
		case x != nil && x.Status == nil:
			out = append(out, Unchecked{Member: m.Name, Why: "it does not answer"})
		case x != nil && e.Foreign(x):
			out = append(out, Unchecked{Member: m.Name,
				Why: "a member of another cluster answers at its address"})
		}
	}
	for i := range e.Readings {
		if x := &e.Readings[i]; x.Status == nil && x.Advertised == 0 {
			why := "its status is not known"
			if errors.Is(x.StatusErr, ErrNoLogin) {
				why = ErrNoLogin.Error()
			}
			out = append(out, Unchecked{Member: x.Endpoint, Why: why})
		}
	}
	return out
}

func (e *Examination) checkLeader(r *report) {
	leader, lost := e.Leader(), false
	for i := range e.Readings {
		x := &e.Readings[i]
		if x.Status == nil {
			continue
		}
		switch {
		case e.Foreign(x):
			r.addFinding(Critical, e.NameOf(x),
				fmt.Sprintf("belongs to another cluster: %x and not %x",
					x.Status.GetHeader().GetClusterId(), e.ClusterID), nextForeign,
				"docs/operations/backup.md#restore-a-cluster")
		case e.Stranger(x):
			r.addFinding(Critical, e.NameOf(x),
				"is not a member of the cluster, and runs: it was removed while it could not be told, and answers with old data", "stop it. To have it back: add it again, with an empty data directory", "docs/operations/cluster.md#shrink-and-replace-a-member")
		case x.Status.Leader == 0:
			lost = true
			r.addFinding(Critical, e.NameOf(x), NoLeader("has no leader", x.Status.GetErrors())+
				": it accepts no writes",
				"check that a majority of members runs, and that they can reach each other on their peer ports", "")
		case x.Status.Leader != leader:
			r.addFinding(Warning, e.NameOf(x), "follows another leader than the others: "+
				e.Name(x.Status.Leader),
				"run doctor again; if it persists, check whether the member is partitioned", "")
		}
	}
	// Members keep a leader that has gone for an election timeout, and a leader without a majority
	// takes as long to notice.
	if x := e.leading(); leader != 0 && !lost && (x == nil || x.Status.Leader != leader) {
		r.skipMember("", "the members follow "+e.Name(leader)+
			", which does not answer; run doctor again")
	} else if voters, answer, unasked := e.voters(); leader != 0 && !lost && voters > 0 &&
		answer+len(unasked) <= voters/2 {
		r.skipMember("", e.Name(leader)+
			" leads as far as is known, but too few members answer; run doctor again")
	}
}

// NoLeader returns for how long a member has had no leader if the errors of its status say so, and
// otherwise its second argument.
func NoLeader(otherwise string, errors []string) string {
	for _, text := range errors {
		if d, ok := strings.CutPrefix(text, "vigil: there has been no leader for "); ok {
			return "has had no leader for " + d
		}
	}
	return otherwise
}

// leading returns the reading of the leader, nil if the leader did not answer.
func (e *Examination) leading() *Reading {
	leader := e.Leader()
	i := slices.IndexFunc(e.Readings,
		func(x Reading) bool { return leader != 0 && x.ID() == leader })
	if i < 0 {
		return nil
	}
	return &e.Readings[i]
}

// voters returns the number of voting members, how many of them answer, and the names of those that
// were not queried.
func (e *Examination) voters() (voters, answer int, unasked []string) {
	for _, m := range e.Members {
		if m.IsLearner {
			continue
		}
		voters++
		if x := e.reading(m); x == nil && m.Name != "" && !e.silent(m) {
			unasked = append(unasked, m.Name)
		} else if x != nil && x.Status != nil && !e.Foreign(x) {
			answer++
		}
	}
	return voters, answer, unasked
}

const nextForeign = "give endpoints of one cluster. If the cluster was restored from a backup: stop this member, keep its data directory, and restore it from the file that the others were restored from, with the same --initial-cluster and --initial-cluster-token"

// nextQuorum lists the steps that lose least first.
const nextQuorum = "start the members that do not answer, with their data directories: nothing is lost then. Only if a majority has lost its disks: stop the others, run vigilctl check on each data directory, and start the one whose raft log ends with the highest term, and among these the highest entry, once with --force-new-cluster, which keeps everything that it has. The last resort is a backup (vigilctl snapshot restore): writes after it are lost"

func (e *Examination) checkQuorum(r *report) {
	voters, answer, unasked := e.voters()
	need := voters/2 + 1
	if voters == 0 {
		r.skipMember("", "the members are not known")
		return
	}
	if len(unasked) > 0 {
		r.skipMember("", strings.Join(unasked, ", ")+
			" not asked: give the endpoints, or --cluster=true")
	}
	const nextOthers = "bring the other members back first: the findings about each say how"
	switch leader := e.Leader(); {
	case answer+len(unasked) < need && leader != 0:
		r.addFinding(Critical, "",
			fmt.Sprintf("%d of %d voting members answer and %d are needed, but %s is followed as the leader: the others have failed within the last seconds, or cannot be reached from here", answer, voters, need, e.Name(leader)),
			"run doctor again, also at a member. If there is no leader then: "+nextQuorum,
			"docs/operations/backup.md#the-majority-is-lost")
	case answer+len(unasked) < need:
		r.addFinding(Critical, "",
			fmt.Sprintf("%d of %d voting members answer and %d are needed: no write is possible",
				answer, voters, need), nextQuorum,
			"docs/operations/backup.md#the-majority-is-lost")
	case voters == 1 && len(e.Members) == 1:
		r.addFinding(Note, "",
			"the cluster has one member: if it is lost, all writes since the last backup are lost",
			"add two members, or make backups: vigilctl snapshot save", "docs/operations/backup.md")
	case voters == 1:
		r.addFinding(Note, "", "the cluster has one voting member: if it fails, all writes stop",
			nextVoter(e.Members, "add two members"), "docs/operations/cluster.md#grow")
	case len(unasked) == 0 && answer < voters && answer == need:
		r.addFinding(Critical, "",
			fmt.Sprintf("%d of %d voting members answer, the smallest quorum: if the others have failed, one more failure stops all writes", answer, voters), nextOthers, "")
	case len(unasked) == 0 && answer < voters:
		r.addFinding(Warning, "",
			fmt.Sprintf("%d of %d voting members answer: if the others have failed, writes go on after %s, and no longer after another", answer, voters, amount.Count(answer-need, "more failure")), nextOthers, "")
	}
	if voters > 1 && voters%2 == 0 {
		survive := "no failure"
		if n := voters - need; n > 0 {
			survive = amount.Count(n, "failure")
		}
		r.addFinding(Note, "",
			fmt.Sprintf("%d voting members survive %s, as %d would", voters, survive,
				voters-1), nextVoter(e.Members, "add one"), "docs/operations/cluster.md#grow")
	}
}

// nextVoter returns how the cluster gets another voting member.
func nextVoter(members []*etcdserverpb.Member, otherwise string) string {
	if i := slices.IndexFunc(members, (*etcdserverpb.Member).GetIsLearner); i >= 0 {
		return fmt.Sprintf("when the learner has caught up: vigilctl member promote %x",
			members[i].ID)
	}
	return otherwise
}

func (e *Examination) checkAlarms(r *report) {
	next := map[etcdserverpb.AlarmType]string{
		etcdserverpb.AlarmType_NOSPACE: "delete unneeded keys, then: vigilctl compaction REVISION; with etcd also: vigilctl defrag, vigilctl alarm disarm; or start the members with a higher --quota-backend-bytes",
		etcdserverpb.AlarmType_CORRUPT: "its data are damaged, or differ from those of the other members; its log says which. Check its disk; then remove the member, move its data directory away and add it again",
	}
	if len(e.Members) == 1 {
		next[etcdserverpb.AlarmType_CORRUPT] = "do not restart it: as long as it runs it answers reads of what is not damaged. Check its disk, copy the keys that can be read, and compare them with the last backup"
	}
	page := map[etcdserverpb.AlarmType]string{
		etcdserverpb.AlarmType_NOSPACE: "docs/operations/disks.md#the-data-reach-the-quota",
		etcdserverpb.AlarmType_CORRUPT: "docs/operations/corruption.md",
	}
	for _, a := range e.Alarms {
		name := ""
		advice := next[a.Alarm]
		switch {
		case a.MemberID != 0:
			name = e.Name(a.MemberID)
		case a.Alarm == etcdserverpb.AlarmType_CORRUPT: // the wrong member is unknown
			advice = nextDiffers
		}
		r.addFinding(Critical, name, "alarm "+a.Alarm.String(),
			cmp.Or(advice, "its log says why"), page[a.Alarm])
	}
}

func (e *Examination) checkVersions(r *report) {
	e.compared(r, e.answering())
	seen, programs, downgrade := map[string][]string{}, map[string][]string{}, false
	for i := range e.Readings {
		if x := &e.Readings[i]; x.Status != nil {
			seen[x.Status.Version] = append(seen[x.Status.Version], e.NameOf(x))
			if v := x.Program(); v != "" {
				programs[v] = append(programs[v], e.NameOf(x))
			}
			if x.Metrics == nil {
				r.skipMember(e.NameOf(x), noMetrics)
			}
			if d := x.Status.DowngradeInfo; d.GetEnabled() && !downgrade {
				downgrade = true // all members of the cluster report the downgrade
				r.addFinding(Note, "", "a downgrade to "+d.TargetVersion+" is in progress",
					"finish it, or: vigilctl downgrade cancel", "")
			}
		}
	}
	if len(seen) < 2 {
		seen = programs // programs with one API level
	}
	if len(seen) > 1 {
		var list []string
		for v, names := range seen {
			list = append(list, strings.Join(names, ", ")+": "+v)
		}
		r.addFinding(Warning, "", "members have different versions: "+sorted(list),
			"finish the upgrade: one member after the other", "")
	}
}

// sorted joins texts in order.
func sorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, "; ")
}
