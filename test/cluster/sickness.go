package cluster

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"vigil/test/proc"
)

// varies is what differs between two runs of doctor about the same sickness.
var varies = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{12,16}\b`), "ID"},
	{regexp.MustCompile(`leader m\d`), "leader LEADER"},
	{regexp.MustCompile(`revision \d+`), "revision N"},
	{regexp.MustCompile(`hash \d+ and not \d+`), "hash N and not N"},
	{regexp.MustCompile(`\d+ damaged records`), "N damaged records"},
	{regexp.MustCompile(`\d+ (writes of the raft log|commits|applied writes|round trips)`), "N $1"},
	{regexp.MustCompile(`takes [\d.]+(µs|ms|s) or more`), "takes TIME or more"},
	{regexp.MustCompile(`by [\d.]+s or more`), "by TIME or more"},
	{regexp.MustCompile(`lags the leader by \d+`), "lags the leader by N"},
	{regexp.MustCompile(`is \d+ revisions behind`), "is N revisions behind"},
	{regexp.MustCompile(`\d+% of the quota`), "N% of the quota"},
	{regexp.MustCompile(`\d+ revisions are kept`), "N revisions are kept"},
	{regexp.MustCompile(`was \S+ ago`), "was TIME ago"},
	{regexp.MustCompile(`expires in \S+`), "expires in TIME"},
	{regexp.MustCompile(`expired on \S+`), "expired on DATE"},
	{regexp.MustCompile(`current time \S+ is after \S+`), "current time TIME is after TIME"},
	{regexp.MustCompile(`/\S+/([a-z0-9-]+\.pem)`), "DIRECTORY/$1"},
}

// unhurried leaves out the checks whose result is that of the machine: how fast its disk and its processor are.
const unhurried = "--skip=disk,network"

// patient is for clusters all of whose members answer, however long a busy machine needs.
const patient = "--command-timeout=60s"

// doctor runs vigilctl doctor until it prints what is in testdata/doctor, and exits with the code there: what it finds may
// take a moment to be seen. With -rewrite it writes the file, once what it prints does not change any more.
func (g *group) doctor(name string, args ...string) {
	g.t.Helper()
	file := filepath.Join("testdata", "doctor", name+".txt")
	want, err := os.ReadFile(file)
	f := flag.Lookup("rewrite")
	rewrite := f != nil && f.Value.String() == "true"
	if err != nil && !rewrite {
		g.t.Fatal(err)
	}
	var got, last string
	began := time.Now()
	defer func() { g.t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond)) }()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = g.diagnosis(args...); got == string(want) && !rewrite {
			return
		}
		if rewrite && got == last {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				g.t.Fatal(err)
			}
			g.t.Logf("%s:\n%s", name, got)
			return
		}
		if last = got; rewrite {
			time.Sleep(3 * time.Second)
		}
	}
	g.t.Fatalf("%s: got\n%s\nwant\n%s", name, got, want)
}

// diagnosis is the output of vigilctl doctor and its exit code, without what varies.
func (g *group) diagnosis(args ...string) string {
	g.t.Helper()
	r := proc.Run(g.t, 2*patience, proc.Spec{Name: proc.Path(g.t, proc.Vigilctl), Args: append([]string{"doctor"}, args...)})
	text := fmt.Sprintf("%s%sexit code %d\n", r.Stdout, r.Stderr, r.Code)
	for _, m := range g.list {
		text = strings.ReplaceAll(text, m.Addr(), "ADDRESS-OF-"+m.name)
	}
	for _, v := range varies {
		text = v.pattern.ReplaceAllString(text, v.text)
	}
	return text
}

// hurried asks doctor about everything: only what it may find on a slow machine is excused.
func (g *group) hurried() {
	g.t.Helper()
	g.until("ok of a healthy cluster", func() bool {
		for _, line := range strings.Split(g.diagnosis(patient, "--endpoints="+g.list[0].Addr()), "\n") {
			if s := strings.Fields(line); len(s) > 0 && (s[0] == "CRITICAL" || s[0] == "WARNING") && !slow.MatchString(line) {
				g.t.Logf("of a healthy cluster: %s", line)
				return false
			}
		}
		return true
	})
}

var slow = regexp.MustCompile(`takes TIME or more|take \S+ or more|were slow to apply|changes of the leader|writes wait for agreement`)
