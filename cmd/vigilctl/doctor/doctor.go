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

const doctorHelp = `Look at every member for what is wrong or soon will be, and say what to do: whether
they answer and agree on a leader, how many may be lost, alarms, data that differ,
versions, the quota, members that lag behind, slow disks and networks, clocks that
differ, certificates near their end, watchers that do not keep up, compaction that
does not run, and settings that are known to hurt. Nothing is changed. To compare
data each member reads its store once.

Each finding has a severity: critical (something does not work, or soon will not),
warning (something will not if nobody does anything) or note. It works with members
of etcd too.

Exit codes: 0 nothing but notes was found, 1 there is something critical or a warning.`

const doctorExample = `  vigilctl doctor --cluster
  vigilctl doctor --endpoints a:2379,b:2379,c:2379 || page somebody
  vigilctl doctor -w json | jq -r '.findings[] | select(.severity == "critical").what'`

func Command(env *cli.Env) *cobra.Command {
	l := survey.Survey{Env: env}
	c := &cobra.Command{
		Use:     "doctor [options]",
		Short:   "Find what is wrong with the members, and say what to do",
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

// diagnosis is what a doctor says.
type diagnosis struct {
	Healthy  bool      `json:"healthy"`
	Cluster  string    `json:"cluster_id"`
	Members  int       `json:"members"`
	Leader   string    `json:"leader"`
	Findings []finding `json:"findings"`
	Passed   []string  `json:"passed"`
}

func diagnoseMembers(ctx context.Context, l *survey.Survey, p *show.Printer) error {
	e := ask(ctx, l)
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

// ask asks members for everything.
func ask(ctx context.Context, l *survey.Survey) *examined {
	n := len(l.Members)
	e := &examined{Round: l.Read(ctx), clocks: make([]*probe.Clock, n), lines: make([][]string, n)}
	e.ends = slices.Grow(e.ends, n)[:n]
	e.now = e.At
	e.data = compareData(ctx, l, e.Round)
	l.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		if c, err := m.Clock(ctx); err == nil {
			e.clocks[i] = &c
		}
		e.ends[i], _ = m.CertificateEnd(ctx) // a member that cannot be reached is a finding already
		e.lines[i], _ = m.CommandLine(ctx)   // not everybody tells it
	})
	for _, name := range []string{l.Env.Config.TLSFiles.Cert, l.Env.Config.TLSFiles.CA} {
		if name != "" {
			e.files = append(e.files, name)
		}
	}
	return e
}

func (e *examined) diagnose() *diagnosis {
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

// draw says it to people.
func (d *diagnosis) draw(width int, p screen.Paint) []string {
	if width <= 0 {
		width = 100
	}
	var lines []string
	say := func(indent string, style screen.Style, text string) {
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
		say("", styles[f.Severity], strings.ToUpper(string(f.Severity))+"  "+what)
		say("    ", screen.Plain, "next: "+f.Next)
		lines = append(lines, "")
	}
	for _, c := range checks {
		if slices.Contains(d.Passed, c.name) {
			say("", screen.Plain, "ok  "+c.about)
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
	say("", style, fmt.Sprintf("%s, %s: %s", screen.Count(d.Members, "member"), leader, verdict))
	return lines
}

// sorted joins texts in order.
func sorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, "; ")
}
