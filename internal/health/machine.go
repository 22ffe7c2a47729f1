package health

import (
	"fmt"
	"strings"
	"time"

	"vigil/internal/amount"
)

// Clock is how far a member's clock is ahead of the clock of the one who asks: between Least and Most.
type Clock struct{ Least, Most time.Duration }

// Off returns the smallest difference of two clocks; 0 if they may agree.
func (c Clock) Off(other Clock) time.Duration {
	return max(0, c.Least-other.Most, other.Least-c.Most)
}

// File is when the first of the certificates in a file expires.
type File struct {
	Name string
	End  time.Time
	Err  error // why End is not known
}

func (e *Examination) checkClocks(r *report) {
	var known []int
	for i := range e.Clocks {
		if e.Clocks[i] != nil {
			known = append(known, i)
		} else if e.Readings[i].Status != nil {
			r.skip(e.NameOf(&e.Readings[i]), "its time cannot be read")
		}
	}
	wrong := e.wrongClocks(known)
	for at, i := range known {
		against := known[:at] // each pair once
		if wrong[i] {
			against = known
		}
		var names []string
		var least time.Duration
		for _, j := range against {
			if off := e.Clocks[i].Off(*e.Clocks[j]); !wrong[j] && off >= e.Limits.Clock {
				if names = append(names, e.NameOf(&e.Readings[j])); len(names) == 1 || off < least {
					least = off
				}
			}
		}
		if len(names) > 0 {
			r.find(Warning, e.NameOf(&e.Readings[i]), fmt.Sprintf("its clock differs by %v or more from that of %s", least.Round(100*time.Millisecond), strings.Join(names, ", ")),
				"check that time is synchronised: timedatectl. Tokens, certificates and the comparison of logs depend on it", "")
		}
	}
}

// wrongClocks returns the members whose clocks differ from those of most others, if a majority agrees.
func (e *Examination) wrongClocks(known []int) map[int]bool {
	wrong := map[int]bool{}
	for _, i := range known {
		n := 0
		for _, j := range known {
			if e.Clocks[i].Off(*e.Clocks[j]) >= e.Limits.Clock {
				n++
			}
		}
		if 2*n > len(known)-1 {
			wrong[i] = true
		}
	}
	if 2*len(wrong) >= len(known) {
		return nil
	}
	return wrong
}

func (e *Examination) checkCertificates(r *report) {
	reportExpiry := func(member, what string, end time.Time, next string) {
		left := end.Sub(e.Now)
		switch {
		case left <= 0:
			r.find(Critical, member, what+" expired on "+end.Format(time.DateOnly), next, "")
		case left < e.Limits.CertificateCritical:
			r.find(Critical, member, fmt.Sprintf("%s expires in %s", what, amount.Age(left)), next, "")
		case left < e.Limits.Certificate:
			r.find(Warning, member, fmt.Sprintf("%s expires in %s", what, amount.Age(left)), next, "")
		}
	}
	for i := range e.Readings {
		for _, c := range e.Readings[i].Expiries() {
			// What the member shows to a client is judged below, if a client has asked.
			if c.Listener != "client" || c.Use != "server" || e.Readings[i].ByPeer {
				reportExpiry(e.NameOf(&e.Readings[i]), fmt.Sprintf("its certificate for %s (%s)", c.Listener, c.Use), c.End, "replace its file: the member reads it without a restart")
			}
		}
	}
	for i, end := range e.Expiries {
		if e.CertErrs[i] != nil && e.Readings[i].Status != nil {
			r.skip(e.NameOf(&e.Readings[i]), "its certificate cannot be read: "+line(e.CertErrs[i]))
		} else if !end.IsZero() {
			reportExpiry(e.NameOf(&e.Readings[i]), "its certificate", end, "replace the file of --cert-file: the member reads it without a restart")
		}
	}
	for _, f := range e.Files {
		if f.Err == nil {
			reportExpiry("", "the certificate in "+f.Name, f.End, "replace the file")
		} else {
			r.skip("", line(f.Err))
		}
	}
}

// equalSettings are the flags that must be equal at all members, with what happens otherwise.
var equalSettings = []struct{ flag, otherwise string }{
	{"quota-backend-bytes", "the member with the smallest one raises the alarm NOSPACE for all"},
	{"max-request-bytes", "a request is rejected or not depending on the member that gets it"},
	{"max-txn-ops", "a transaction is rejected or not depending on the member that gets it"},
	{"max-learners", "a learner can be added or not depending on the member that gets the request"},
	{"heartbeat-interval", "a follower may replace a leader whose heartbeats are rarer than it expects"},
	{"election-timeout", "members with a short one replace the leader first, also a good one"},
	{"pre-vote", "a member without it replaces a good leader when it rejoins"},
	{"auto-compaction-mode", "what is compacted changes with the leader"},
	{"auto-compaction-retention", "what is compacted changes with the leader"},
	{"auth-token", "a token of one member is invalid at the others"},
	{"client-cert-auth", "a client is accepted or not depending on the member"},
	{ClientTLS, "a client reaches some of the members only"},
}

// checkEqualSettings finds settings in which members differ. A member that does not tell a setting is not compared.
func (e *Examination) checkEqualSettings(r *report) {
	for _, s := range equalSettings {
		by := map[string][]string{}
		for i := range e.Readings {
			x := &e.Readings[i]
			if x.Status == nil || e.Foreign(x) {
				continue
			}
			value, ok := e.Flags[i][s.flag]
			if quota := x.Quota(); s.flag == "quota-backend-bytes" && quota > 0 {
				value, ok = fmt.Sprint(quota), true // also of members of etcd, which tell only their command lines
			}
			if ok {
				by[value] = append(by[value], e.NameOf(x))
			}
		}
		if len(by) < 2 {
			continue
		}
		var list []string
		for value, names := range by {
			list = append(list, strings.Join(names, ", ")+": "+value)
		}
		name := "--" + s.flag
		if s.flag == ClientTLS {
			name = "TLS for clients"
		}
		r.find(Warning, "", fmt.Sprintf("members have different values of %s: %s", name, sorted(list)), "give all the same one, and restart them one after the other; until then "+s.otherwise, "")
	}
}

func (e *Examination) checkSettings(r *report) {
	e.checkEqualSettings(r)
	for i := range e.Readings {
		x := &e.Readings[i]
		name := e.NameOf(x)
		if x.Status == nil {
			continue
		}
		if x.Metrics == nil {
			r.skip(name, "its metrics cannot be read")
		}
		if e.Flags[i] == nil {
			r.skip(name, "its settings cannot be read")
		}
		if open, most := x.Value(OpenFiles), x.Value(MaxFiles); most > 0 && 100*open > e.Limits.OpenFiles*most {
			r.find(Warning, name, fmt.Sprintf("%.0f of %.0f files are open; connections count as files", open, most), "raise LimitNOFILE of its service", "docs/operations/observe.md#vigilfiledescriptors")
		}
		if quota := x.Quota(); x.Metrics != nil && !x.IsVigil() && quota > largeQuota {
			r.find(Warning, name, fmt.Sprintf("a quota of %s exceeds the design limit of etcd", amount.Bytes(quota)), "use at most 8 GiB", "")
		}
		flags := e.Flags[i]
		if v, ok := flags["unsafe-no-fsync"]; ok && v != "false" {
			r.find(Critical, name, "--unsafe-no-fsync: a crash loses acknowledged writes", "remove the flag", "")
		}
		beat, err := time.ParseDuration(flags["heartbeat-interval"] + "ms")
		if err != nil {
			beat = 100 * time.Millisecond
		}
		if election, err := time.ParseDuration(flags["election-timeout"] + "ms"); err == nil && election < 10*beat {
			r.find(Warning, name, fmt.Sprintf("--election-timeout of %v is less than ten times the --heartbeat-interval of %v: a short pause replaces the leader", election, beat), "raise it to ten times the heartbeat interval", "")
		}
		if v, ok := flags["pre-vote"]; ok && v == "false" {
			r.find(Note, name, "--pre-vote=false: a member that rejoins can replace the leader", "remove the flag", "")
		}
	}
}
