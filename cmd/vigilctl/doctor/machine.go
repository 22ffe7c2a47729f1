package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"time"

	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/survey"
)

func (e *examination) checkClocks(r *report) {
	var known []int
	for i := range e.clocks {
		if e.clocks[i] != nil {
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
			if off := e.clocks[i].Off(*e.clocks[j]); !wrong[j] && off >= e.limits.clock {
				if names = append(names, e.NameOf(&e.Readings[j])); len(names) == 1 || off < least {
					least = off
				}
			}
		}
		if len(names) > 0 {
			r.find(warning, e.NameOf(&e.Readings[i]), fmt.Sprintf("its clock differs by %v or more from that of %s", least.Round(100*time.Millisecond), strings.Join(names, ", ")),
				"check that time is synchronised: timedatectl. Tokens, certificates and the comparison of logs depend on it", "")
		}
	}
}

// wrongClocks returns the members whose clocks differ from those of most others, if a majority agrees.
func (e *examination) wrongClocks(known []int) map[int]bool {
	wrong := map[int]bool{}
	for _, i := range known {
		n := 0
		for _, j := range known {
			if e.clocks[i].Off(*e.clocks[j]) >= e.limits.clock {
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

func (e *examination) checkCertificates(r *report) {
	reportExpiry := func(member, what string, end time.Time, next string) {
		left := end.Sub(e.now)
		switch {
		case left <= 0:
			r.find(critical, member, what+" expired on "+end.Format(time.DateOnly), next, "")
		case left < e.limits.certificateCritical:
			r.find(critical, member, fmt.Sprintf("%s expires in %s", what, screen.Age(left)), next, "")
		case left < e.limits.certificate:
			r.find(warning, member, fmt.Sprintf("%s expires in %s", what, screen.Age(left)), next, "")
		}
	}
	for i := range e.Readings {
		for _, c := range e.Readings[i].Expiries() {
			// What the member shows to this program is judged below.
			if c.Listener != "client" || c.Use != "server" {
				reportExpiry(e.NameOf(&e.Readings[i]), fmt.Sprintf("its certificate for %s (%s)", c.Listener, c.Use), c.End, "replace its file: the member reads it without a restart")
			}
		}
	}
	for i, end := range e.expiries {
		if e.certErrs[i] != nil && e.Readings[i].Status != nil {
			r.skip(e.NameOf(&e.Readings[i]), "its certificate cannot be read: "+survey.ErrorLine(e.certErrs[i]))
		} else if !end.IsZero() {
			reportExpiry(e.NameOf(&e.Readings[i]), "its certificate", end, "replace the file of --cert-file: the member reads it without a restart")
		}
	}
	for _, name := range e.files {
		if end, err := firstExpiry(name); err == nil {
			reportExpiry("", "the certificate in "+name, end, "replace the file")
		} else {
			r.skip("", survey.ErrorLine(err))
		}
	}
}

// firstExpiry returns when the first of the certificates in a file expires.
func firstExpiry(name string) (end time.Time, err error) {
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

func (e *examination) checkSettings(r *report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		name := e.NameOf(x)
		if x.Status == nil {
			continue
		}
		if x.Metrics == nil {
			r.skip(name, "its metrics cannot be read")
		}
		if e.lines[i] == nil {
			r.skip(name, "its command line cannot be read")
		}
		if open, most := x.Value(survey.OpenFiles), x.Value(survey.MaxFiles); most > 0 && 100*open > e.limits.files*most {
			r.find(warning, name, fmt.Sprintf("%.0f of %.0f files are open; connections count as files", open, most), "raise LimitNOFILE of its service", "docs/operations/observe.md#vigilfiledescriptors")
		}
		if quota := x.Quota(); x.Metrics != nil && !x.IsVigil() && quota > largeQuota {
			r.find(warning, name, fmt.Sprintf("a quota of %s exceeds the design limit of etcd", screen.Bytes(quota)), "use at most 8 GiB", "")
		}
		flags := flagsOf(e.lines[i])
		if v, ok := flags["unsafe-no-fsync"]; ok && v != "false" {
			r.find(critical, name, "--unsafe-no-fsync: a crash loses acknowledged writes", "remove the flag", "")
		}
		beat, err := time.ParseDuration(flags["heartbeat-interval"] + "ms")
		if err != nil {
			beat = 100 * time.Millisecond
		}
		if election, err := time.ParseDuration(flags["election-timeout"] + "ms"); err == nil && election < 10*beat {
			r.find(warning, name, fmt.Sprintf("--election-timeout of %v is less than ten times the --heartbeat-interval of %v: a short pause replaces the leader", election, beat), "raise it to ten times the heartbeat interval", "")
		}
		if v, ok := flags["pre-vote"]; ok && v == "false" {
			r.find(note, name, "--pre-vote=false: a member that rejoins can replace the leader", "remove the flag", "")
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
