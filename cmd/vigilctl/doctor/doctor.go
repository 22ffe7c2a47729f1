package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
	"vigil/cmd/vigilctl/survey"
)

const doctorHelp = `Check every member for problems, and print the next step for each: members that do not
answer or disagree on a leader, a small quorum, alarms, different data or versions,
the quota, members that lag, slow disks and networks, clocks that differ, expiring
certificates, slow watchers, missing compaction, and harmful settings. The command
changes nothing. To compare data each member reads its store once.

Each finding has a severity: critical (something fails, or soon will), warning
(something will fail without an action) or note. The command works with members of
etcd too.

Exit codes: 0 no findings except notes, 1 a warning or critical finding.`

const doctorExample = `  vigilctl doctor --cluster
  vigilctl doctor --endpoints a:2379,b:2379,c:2379 || send-alert
  vigilctl doctor -w json | jq -r '.findings[] | select(.severity == "critical").what'`

// Command returns the command doctor.
func Command(env *cli.Env) *cobra.Command {
	l := survey.Survey{Env: env}
	c := &cobra.Command{
		Use:     "doctor [options]",
		Short:   "Find problems of the members, and the next step for each",
		Long:    doctorHelp,
		Example: doctorExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usage("doctor takes no arguments, not %q", args)
			}
			p, err := env.Printer(show.Simple, show.JSON)
			if err != nil {
				return err
			}
			return l.Run(c, func(ctx context.Context) error { return diagnoseMembers(ctx, &l, p) })
		},
	}
	l.AddFlags(c)
	return c
}

// diagnosis is the result of all checks.
type diagnosis struct {
	Healthy  bool      `json:"healthy"`
	Cluster  string    `json:"cluster_id"`
	Members  int       `json:"members"`
	Leader   string    `json:"leader"`
	Findings []finding `json:"findings"`
	Passed   []string  `json:"passed"`
}

func diagnoseMembers(ctx context.Context, l *survey.Survey, p *show.Printer) error {
	e := queryMembers(ctx, l)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d := e.diagnose()
	var err error
	if p.Format == show.JSON {
		err = l.Env.Print(show.Answer{Value: d})
	} else {
		width, _, _ := screen.Size(l.Env.Stdout)
		_, err = fmt.Fprintln(l.Env.Stdout, strings.Join(d.draw(width, screen.NewPaint(l.Env.Stdout)), "\n"))
	}
	if err == nil && !d.Healthy {
		err = exit.Silent(exit.Failure)
	}
	return err
}

// queryMembers reads all that the checks need.
func queryMembers(ctx context.Context, l *survey.Survey) *examination {
	n := len(l.Members)
	e := &examination{Round: l.Read(ctx), clocks: make([]*probe.Clock, n), lines: make([][]string, n)}
	e.expiries = slices.Grow(e.expiries, n)[:n]
	e.now = e.At
	e.data = compareData(ctx, l, e.Round)
	l.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		if c, err := m.Clock(ctx); err == nil {
			e.clocks[i] = &c
		}
		e.expiries[i], _ = m.CertificateExpiry(ctx) // an unreachable member is a finding already
		e.lines[i], _ = m.CommandLine(ctx)          // not every member has it
	})
	for _, name := range []string{l.Env.Config.TLSFiles.Cert, l.Env.Config.TLSFiles.CA} {
		if name != "" {
			e.files = append(e.files, name)
		}
	}
	return e
}

func (e *examination) diagnose() *diagnosis {
	id, _ := e.Cluster()
	d := &diagnosis{Healthy: true, Cluster: fmt.Sprintf("%x", id), Members: len(e.Members)}
	if leader := e.Leader(); leader != 0 {
		d.Leader = e.Name(leader)
	}
	d.Findings, d.Passed = e.examine()
	if d.Findings == nil {
		d.Findings = []finding{}
	}
	rank := map[severity]int{critical: 0, warning: 1, note: 2}
	slices.SortStableFunc(d.Findings, func(a, b finding) int { return rank[a.Severity] - rank[b.Severity] })
	for _, f := range d.Findings {
		d.Healthy = d.Healthy && f.Severity == note
	}
	return d
}

// draw returns the lines of a diagnosis.
func (d *diagnosis) draw(width int, p screen.Paint) []string {
	if width <= 0 {
		width = 100
	}
	var lines []string
	add := func(indent string, style screen.Style, text string) {
		for _, line := range screen.Wrap(screen.Safe(text), width-len(indent)) {
			lines = append(lines, indent+p.In(style, line))
		}
	}
	styles := map[severity]screen.Style{critical: screen.Bad, warning: screen.Warn, note: screen.Plain}
	for _, f := range d.Findings {
		what := f.What
		if f.Member != "" {
			what = f.Member + ": " + what
		}
		add("", styles[f.Severity], strings.ToUpper(string(f.Severity))+"  "+what)
		add("    ", screen.Plain, "next: "+f.Next)
		lines = append(lines, "")
	}
	for _, c := range checks {
		if slices.Contains(d.Passed, c.name) {
			add("", screen.Plain, "ok  "+c.about)
		}
	}
	lines = append(lines, "")
	leader := "no leader"
	if d.Leader != "" {
		leader = "leader " + d.Leader
	}
	number := map[severity]int{}
	for _, f := range d.Findings {
		number[f.Severity]++
	}
	verdict, style := "nothing is wrong", screen.Good
	if !d.Healthy {
		verdict, style = fmt.Sprintf("%d critical, %s", number[critical], screen.Count(number[warning], "warning")), screen.Bad
	}
	if number[note] > 0 {
		verdict += ", " + screen.Count(number[note], "note")
	}
	add("", style, fmt.Sprintf("%s, %s: %s", screen.Count(d.Members, "member"), leader, verdict))
	return lines
}

// sorted joins texts in order.
func sorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, "; ")
}
