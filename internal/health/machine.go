package health

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"vigil/internal/amount"
)

// Clock is how far a member's clock is ahead of the client's clock: between Least and Most.
type Clock struct{ Least, Most time.Duration }

// Off returns the smallest difference of two clocks; 0 if they may agree.
func (c Clock) Off(other Clock) time.Duration {
	return max(0, limited(c.Least)-limited(other.Most), limited(other.Least)-limited(c.Most))
}

// limited limits a time difference, so that another one can be subtracted from it.
func limited(d time.Duration) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	return max(-most, min(d, most))
}

// File is a certificate file of the client. Its deciding certificate expires at End.
type File struct {
	Use     string // its purpose
	From    string // the flag and its value
	Subject string
	End     time.Time
	Err     error // why End is unknown
}

func (e *Examination) checkClocks(r *report) {
	var known []int
	for i := range e.Clocks {
		if e.Clocks[i] != nil {
			known = append(known, i)
		} else if e.Readings[i].Status != nil {
			r.skipMember(e.NameOf(&e.Readings[i]), "its time cannot be read")
		}
	}
	e.compared(r, len(known))
	wrong := e.wrongClocks(known)
	for at, i := range known {
		against := known[:at] // each pair only once
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
			r.addFinding(Warning, e.NameOf(&e.Readings[i]),
				fmt.Sprintf("its clock differs by %v or more from that of %s",
					least.Round(100*time.Millisecond), strings.Join(names, ", ")),
				"check that time is synchronised: timedatectl. Tokens, certificates and the comparison of logs depend on it", "")
		}
	}
}

// wrongClocks returns the members whose clocks differ from most others' clocks, if a majority
// agrees.
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

// certificateFlags are the flags for certificate files, by listener and use, with their purposes.
var certificateFlags = map[[2]string][2]string{
	{"client", "server"}:    {"--cert-file", "its certificate for clients"},
	{"client", "client"}:    {"--client-cert-file", "its certificate as a client of itself"},
	{"client", "authority"}: {"--trusted-ca-file", "the authority of its clients' certificates"},
	{"peer", "server"}:      {"--peer-cert-file", "its certificate for other members"},
	{"peer", "client"}:      {"--peer-client-cert-file", "its certificate at other members"},
	{"peer", "authority"}: {"--peer-trusted-ca-file",
		"the authority of other members' certificates"},
}

// describe returns the purpose of a certificate, and how to replace it.
func (c *Certificate) describe() (what, next string) {
	known, ok := certificateFlags[[2]string{c.Listener, c.Use}]
	if !ok {
		return fmt.Sprintf("its certificate for %s (%s)", c.Listener, c.Use),
			"replace its file: the member reads it without a restart"
	}
	what = known[1] + " (" + known[0]
	next = "replace the file of " + known[0] + ": the member reads it without a restart"
	switch {
	case c.Generated:
		what = known[1] + " (generated"
		next = "start the member again after that: it generates another one"
	case c.Use == "authority":
		next = "add its successor to the file of " + known[0] +
			", then replace the certificates that it has signed: the member reads both without a restart"
	}
	if c.Subject != "" {
		what += ", " + c.Subject
	}
	return what + ")", next
}

func (e *Examination) checkCertificates(r *report) {
	reportExpiry := func(member, what string, end time.Time, next string) {
		left, on := end.Sub(e.Now), end.UTC().Format(time.DateOnly)
		switch {
		case left <= 0:
			r.addFinding(Critical, member, what+" expired on "+on, next, "")
		case left < e.Limits.CertificateCritical:
			r.addFinding(Critical, member,
				fmt.Sprintf("%s expires in %s, on %s", what, amount.Age(left), on), next, "")
		case left < e.Limits.Certificate:
			r.addFinding(Warning, member,
				fmt.Sprintf("%s expires in %s, on %s", what, amount.Age(left), on), next, "")
		}
	}
	for i := range e.Readings {
		x := &e.Readings[i]
		shown := Certificate{Listener: "client", Use: "server", End: e.Expiries[i]}
		if i < len(e.Subjects) {
			shown.Subject = e.Subjects[i]
		}
		for _, c := range x.certificates() {
			if c.Listener == shown.Listener && c.Use == shown.Use &&
				c.End.Unix() == shown.End.Unix() {
				shown.End = time.Time{} // the same certificate
			}
			what, next := c.describe()
			reportExpiry(e.NameOf(x), what, c.End, next)
		}
		if x.Status != nil && x.Metrics == nil && len(x.Certificates) == 0 {
			r.skipMember(e.NameOf(x), noMetrics)
		}
		if e.CertErrs[i] != nil && x.Status != nil {
			r.skipMember(e.NameOf(x), "its certificate cannot be read: "+line(e.CertErrs[i]))
		} else if !shown.End.IsZero() {
			what, next := shown.describe()
			if len(x.Certificates) > 0 {
				what, next = fmt.Sprintf("the certificate at %s (%s), which is not the member's,",
					x.Endpoint, shown.Subject), "replace it where TLS ends in front of the member"
			}
			reportExpiry(e.NameOf(x), what, shown.End, next)
		}
	}
	for _, f := range e.Files {
		if f.Err == nil {
			reportExpiry("", fmt.Sprintf("%s (%s, %s)", f.Use, f.From, f.Subject), f.End,
				"replace the file here, at the machine that runs this program")
		} else {
			r.skipMember("", line(f.Err))
		}
	}
}

// equalSettings are the flags that must be equal at all members, with the consequence of a
// difference.
var equalSettings = []struct{ flag, otherwise string }{
	{"quota-backend-bytes", "the member with the smallest one raises the alarm NOSPACE for all"},
	{"max-request-bytes", "a request is rejected or not depending on the member that gets it"},
	{"max-txn-ops", "a transaction is rejected or not depending on the member that gets it"},
	{"max-learners", "a learner can be added or not depending on the member that gets the request"},
	{"heartbeat-interval",
		"a follower may replace a leader whose heartbeats are rarer than it expects"},
	{"election-timeout", "members with a short one replace the leader first, also a good one"},
	{"pre-vote", "a member without it replaces a good leader when it rejoins"},
	{compactionMode, "what is compacted changes with the leader"},
	{compactionRetention, "what is compacted changes with the leader"},
	{"auth-token", "a token of one member is invalid at the others"},
	{"client-cert-auth", "a client is accepted or not depending on the member"},
	{ClientTLS, "a client reaches some of the members only"},
}

// meaning returns the same text for values of a flag that have the same meaning.
func meaning(flag, value string, all map[string]string) string {
	switch flag {
	case "pre-vote", "client-cert-auth":
		return strconv.FormatBool(on(value))
	case "auth-token":
		kind, _, _ := strings.Cut(value, ",") // the rest are files at the member
		return cmp.Or(kind, "simple")
	case compactionMode:
		return cmp.Or(value, periodic)
	case compactionRetention:
		if d, err := time.ParseDuration(value); err == nil && d == 0 {
			return "0"
		} else if err == nil {
			return d.String()
		}
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil:
		return value
	case flag == "quota-backend-bytes" && n < 0:
		return "none"
	case flag == compactionRetention && n != 0 &&
		cmp.Or(all[compactionMode], periodic) == periodic && n <= maxHours:
		return (time.Duration(n) * time.Hour).String()
	}
	return strconv.FormatInt(n, 10)
}

// Flags that depend on each other.
const (
	compactionMode      = "auto-compaction-mode"
	compactionRetention = "auto-compaction-retention"
)

const (
	// periodic is the default of --auto-compaction-mode. A plain number then means hours, up to
	// maxHours.
	periodic = "periodic"
	maxHours = int64(math.MaxInt64 / time.Hour)
)

// on reports whether a flag is on: it has no value, or a true one.
func on(value string) bool {
	v, err := strconv.ParseBool(value)
	return err != nil || v
}

// checkEqualSettings finds settings in which members differ. It ignores members that do not report
// a setting.
func (e *Examination) checkEqualSettings(r *report) {
	for _, s := range equalSettings {
		// by what a value means, and as it is given
		by, shown := map[string][]string{}, map[string]string{}
		for i := range e.Readings {
			x := &e.Readings[i]
			if x.Status == nil || e.Foreign(x) {
				continue
			}
			value, ok := e.Flags[i][s.flag]
			if quota := x.Quota(); s.flag == "quota-backend-bytes" && quota > 0 {
				// this also covers members of etcd, which report only their command lines
				value, ok = fmt.Sprint(quota), true
			}
			if !ok || s.flag == compactionMode &&
				meaning(compactionRetention, e.Flags[i][compactionRetention], e.Flags[i]) == "0" {
				continue // the mode has no effect without automatic compaction
			}
			same := meaning(s.flag, value, e.Flags[i])
			if by[same] == nil {
				shown[same] = value
			}
			by[same] = append(by[same], e.NameOf(x))
		}
		if len(by) < 2 {
			continue
		}
		var list []string
		for same, names := range by {
			list = append(list, strings.Join(names, ", ")+": "+cmp.Or(shown[same], same))
		}
		name := "--" + s.flag
		if s.flag == ClientTLS {
			name = "TLS for clients"
		}
		r.addFinding(Warning, "", fmt.Sprintf("members have different values of %s: %s", name,
			sorted(list)), "give all the same one, and restart them one after the other; until then "+s.otherwise, "")
	}
}

func (e *Examination) checkSettings(r *report) {
	e.compared(r, e.answering())
	e.checkEqualSettings(r)
	for i := range e.Readings {
		x := &e.Readings[i]
		name := e.NameOf(x)
		if x.Status == nil {
			continue
		}
		if x.Metrics == nil {
			r.skipMember(name, noMetrics)
		}
		if e.Flags[i] == nil {
			r.skipMember(name, "its settings cannot be read")
		}
		if open, most := x.Value(OpenFiles), x.Value(MaxFiles); most > 0 &&
			100*open > e.Limits.OpenFiles*most {
			r.addFinding(Warning, name,
				fmt.Sprintf("%.0f of %.0f files are open; connections count as files", open, most),
				"raise LimitNOFILE of its service",
				"docs/operations/observe.md#vigilfiledescriptors")
		}
		if quota := x.Quota(); x.Metrics != nil && !x.IsVigil() && quota > largeQuota {
			r.addFinding(Warning, name,
				fmt.Sprintf("a quota of %s exceeds the design limit of etcd", amount.Bytes(quota)),
				"use at most 8 GiB", "")
		}
		flags := e.Flags[i]
		if v, ok := flags["unsafe-no-fsync"]; ok && on(v) {
			r.addFinding(Critical, name, "--unsafe-no-fsync: a crash loses acknowledged writes",
				"remove the flag", "")
		}
		beat, err := time.ParseDuration(flags["heartbeat-interval"] + "ms")
		if err != nil {
			beat = 100 * time.Millisecond
		}
		if election, err := time.ParseDuration(flags["election-timeout"] + "ms"); err == nil &&
			election < 10*beat {
			r.addFinding(Warning, name,
				fmt.Sprintf("--election-timeout of %v is less than ten times the --heartbeat-interval of %v: a short pause replaces the leader", election, beat), "raise it to ten times the heartbeat interval", "")
		}
		if v, ok := flags["pre-vote"]; ok && !on(v) {
			r.addFinding(Note, name,
				"--pre-vote=false: a member that rejoins can replace the leader",
				"remove the flag", "")
		}
	}
}
