package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"vigil/test/proc"
)

// What etcdctl prints about a cluster of three is what it prints about a stock one. The transcript
// is recorded with VIGIL_SUBJECT=etcd go test ./cluster -run Transcript -rewrite. In it m1 leads at
// first; $ID1 and the like stand for what is another at every run, and the blanks and lines of
// tables are squeezed. The members m4 and m5 are never started.
func TestTranscript(t *testing.T) {
	t.Parallel()
	g := start(t, 3, steady)
	ctl := proc.Path(t, proc.Etcdctl)
	all := append(append([]*member{}, g.list...), g.configure("m4"), g.configure("m5"))
	ids := map[string]string{}
	names := func() *strings.Replacer {
		var pairs []string
		for i, m := range all {
			n := i + 1
			if id := ids[m.name]; id != "" {
				pairs = append(pairs, fmt.Sprintf("$ID%d", n), id)
			}
			pairs = append(pairs, fmt.Sprintf("$PEER%d", n), m.peerURL, fmt.Sprintf("$CLIENT%d", n),
				fmt.Sprintf("127.0.0.1:%d", m.cfg.ClientPort))
		}
		return strings.NewReplacer(pairs...)
	}
	masked := func(s string) string {
		var pairs []string
		for i, m := range all {
			n := i + 1
			if id := ids[m.name]; id != "" {
				pairs = append(pairs, id, fmt.Sprintf("$ID%d", n))
			}
			pairs = append(pairs, m.peerURL, fmt.Sprintf("$PEER%d", n),
				fmt.Sprintf("127.0.0.1:%d", m.cfg.ClientPort), fmt.Sprintf("$CLIENT%d", n))
		}
		for _, v := range varying {
			s = v.re.ReplaceAllString(s, v.to)
		}
		s = strings.NewReplacer(pairs...).Replace(s)
		lines := strings.SplitAfter(s, "\n")
		// Members come by id, which is another at every run.
		sortRuns(lines)
		return strings.Join(lines, "")
	}
	lead := g.leader()
	for i, m := range g.list {
		ids[m.name] = fmt.Sprintf("%x", m.id(g))
		if i == 0 && m != lead {
			if _, err := lead.client.MoveLeader(proc.Context(t), m.id(g)); err != nil {
				t.Fatal(err)
			}
		}
	}
	datadriven.RunTest(t, "testdata/members.txt",
		func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.SplitSeq(d.Input, "\n") {
				args := strings.Fields(names().Replace(line))
				if d.HasArg("all") {
					args = append(args, "--endpoints="+
						names().Replace("$CLIENT1,$CLIENT2,$CLIENT3"))
				} else {
					at := 1
					if d.HasArg("at") {
						d.ScanArgs(t, "at", &at)
					}
					args = append(args, "--endpoints="+
						names().Replace(fmt.Sprintf("$CLIENT%d", at)))
				}
				g.agree() // a member answers from what it has applied
				var res proc.Result
				g.until("connections that are old enough for a change of the members", func() bool {
					res = proc.Run(t, patience, proc.Spec{Name: ctl, Args: args})
					return !strings.Contains(res.Stderr, "unhealthy cluster")
				})
				text := res.Stdout
				if m := regexp.MustCompile(`^Member +([0-9a-f]+) added`).FindStringSubmatch(text); m != nil {
					ids[args[2]] = m[1]
				}
				for l := range strings.Lines(res.Stderr) {
					if !strings.HasPrefix(l, `{"level":`) {
						text += l
					}
				}
				if res.Code != 0 {
					text += fmt.Sprintf("exit %d\n", res.Code)
				}
				fmt.Fprintf(&out, "$ %s\n%s", line, masked(text))
			}
			return out.String()
		})
}

var varying = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`─+`), "─"},
	{regexp.MustCompile(` +`), " "},
	{regexp.MustCompile(`\d[\d.]* [kM]?B │ \d[\d.]* [kM]?B │ \d+%`), "SIZE │ SIZE │ N%"},
	{regexp.MustCompile(`(true|false) │ (true|false) │ \d+ │ \d+ │ \d+ │`),
		"$1 │ $2 │ N │ N │ N │"},
	{regexp.MustCompile(`took = \S+`), "took = T"},
	{regexp.MustCompile(`cluster [0-9a-f]+`), "cluster ID"},
}

// sortRuns sorts lines that begin alike, so that lists have one order.
func sortRuns(lines []string) {
	kind := func(s string) string {
		for _, p := range []string{"$ID", "│ $ID", "│ $CLIENT", "│ http://$CLIENT", "$CLIENT",
			"http://$CLIENT"} {
			if strings.HasPrefix(s, p) {
				return p
			}
		}
		return ""
	}
	for i := range lines {
		for k := i; k > 0 && kind(lines[k]) != "" && kind(lines[k]) == kind(lines[k-1]) &&
			lines[k] < lines[k-1]; k-- {
			lines[k], lines[k-1] = lines[k-1], lines[k]
		}
	}
	for i, l := range lines {
		if rest, ok := strings.CutPrefix(l, "ETCD_INITIAL_CLUSTER="); ok {
			parts := strings.Split(strings.Trim(rest, "\"\n"), ",")
			for a := range parts {
				for b := a; b > 0 && parts[b] < parts[b-1]; b-- {
					parts[b], parts[b-1] = parts[b-1], parts[b]
				}
			}
			lines[i] = `ETCD_INITIAL_CLUSTER="` + strings.Join(parts, ",") + "\"\n"
		}
	}
}
