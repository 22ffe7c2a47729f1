package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
changes nothing. To compare data each member reads its store once. It looks at the whole
cluster, of which one endpoint is enough.

What could not be looked at is listed as not checked, and never as ok. Each finding has
a severity: critical (something fails, or soon will), warning (something will fail
without an action) or note. --limit moves a limit, for example round-trip=300ms between
sites; --skip leaves a check out. The command works with members of etcd too.

Exit codes: 0 no findings except notes, 1 a warning or critical finding.`

const doctorExample = `  vigilctl doctor
  vigilctl doctor --endpoints a:2379,b:2379,c:2379 || send-alert
  vigilctl doctor --limit round-trip=300ms,raft-log=30ms --skip settings
  vigilctl doctor -w json | jq -r '.findings[] | select(.severity == "critical").what'`

// Command returns the command doctor.
func Command(env *cli.Env) *cobra.Command {
	l := survey.Survey{Env: env, Whole: true}
	var skip, limit []string
	c := &cobra.Command{
		Use:     "doctor [options]",
		Short:   "Find problems of the members, and the next step for each",
		Long:    doctorHelp,
		Example: doctorExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usage("doctor takes no arguments, not %q", args)
			}
			e := &examination{omit: skip}
			var err error
			if e.limits, err = parseLimits(limit); err == nil {
				err = validateChecks(skip)
			}
			if err != nil {
				return err
			}
			p, err := env.Printer(show.Simple, show.JSON, show.YAML)
			if err != nil {
				return err
			}
			return l.Run(c, func(ctx context.Context) error { return e.diagnoseMembers(ctx, &l, p) })
		},
	}
	l.AddFlags(c)
	c.Flags().StringSliceVar(&skip, "skip", nil, "checks to leave out, separated by commas: "+strings.Join(checkNames(), ", "))
	c.Flags().StringSliceVar(&limit, "limit", nil, "NAME=VALUE, another limit of a check: "+strings.Join(limitNames(), ", "))
	return c
}

// diagnosis is the result of all checks.
type diagnosis struct {
	Healthy  bool      `json:"healthy"`
	Cluster  string    `json:"cluster_id"`
	Members  int       `json:"members"`
	Leader   string    `json:"leader"`
	Findings []finding `json:"findings"`
	// Passed are the checks that found nothing in the members that answer.
	Passed    []string    `json:"passed"`
	Unchecked []unchecked `json:"not_checked"`

	seen  []string // the members that answer, if others do not
	pages string   // the directory of the pages, with a slash; empty if it is not known
}

func (e *examination) diagnoseMembers(ctx context.Context, l *survey.Survey, p *show.Printer) error {
	e.queryMembers(ctx, l)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d := e.diagnose()
	if program, err := os.Executable(); err == nil {
		d.pages = findPages(program)
	}
	var err error
	if p.Format != show.Simple {
		err = l.Env.Print(show.Answer{Value: d})
	} else {
		out := l.Env.Stdout.Drawing()
		width, _, _ := screen.Size(out)
		_, err = fmt.Fprintln(out, strings.Join(d.draw(width, screen.NewPaint(out)), "\n"))
	}
	if err == nil && !d.Healthy {
		err = exit.Silent(exit.Failure)
	}
	return err
}

// queryMembers reads all that the checks need.
func (e *examination) queryMembers(ctx context.Context, l *survey.Survey) {
	n := len(l.Members)
	e.Round, e.clocks, e.lines = l.Read(ctx), make([]*probe.Clock, n), make([][]string, n)
	e.expiries, e.certErrs = make([]time.Time, n), make([]error, n)
	e.now = e.At
	e.data = compareData(ctx, l, e.Round)
	l.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		if c, err := m.Clock(ctx); err == nil {
			e.clocks[i] = &c
		}
		e.expiries[i], e.certErrs[i] = m.CertificateExpiry(ctx)
		e.lines[i], _ = m.CommandLine(ctx) // nil says enough
	})
	for _, name := range []string{l.Env.Config.TLSFiles.Cert, l.Env.Config.TLSFiles.CA} {
		if name != "" {
			e.files = append(e.files, name)
		}
	}
}

func (e *examination) diagnose() *diagnosis {
	id, _ := e.Cluster()
	d := &diagnosis{Healthy: true, Cluster: fmt.Sprintf("%x", id), Members: len(e.Members)}
	if leader := e.Leader(); leader != 0 {
		d.Leader = e.Name(leader)
	}
	d.Findings, d.Passed, d.Unchecked = e.examine()
	// Lists that are never null are easier to read for programs.
	d.Findings, d.Passed, d.Unchecked = append([]finding{}, d.Findings...), append([]string{}, d.Passed...), append([]unchecked{}, d.Unchecked...)
	for i := range e.Readings {
		if x := &e.Readings[i]; x.Status != nil {
			d.seen = append(d.seen, e.NameOf(x))
		}
	}
	if !slices.ContainsFunc(d.Unchecked, func(u unchecked) bool { return u.Check == "" }) {
		d.seen = nil
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
		add("    ", screen.Plain, "page: "+d.pages+f.Page)
		lines = append(lines, "")
	}
	for _, c := range checks {
		if slices.Contains(d.Passed, c.name) {
			text := "ok  " + c.about
			if len(d.seen) > 0 && !c.cluster {
				text += " (" + strings.Join(d.seen, ", ") + ")"
			}
			add("", screen.Plain, text)
		}
	}
	for _, text := range d.gaps() {
		add("", screen.Plain, "not checked: "+text)
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
	if len(d.Unchecked) > 0 {
		verdict += ", not everything was checked"
	}
	members := screen.Count(d.Members, "member")
	if d.Members == 0 {
		members = "members not known"
	}
	add("", style, fmt.Sprintf("%s, %s: %s", members, leader, verdict))
	return lines
}

// gaps returns what was not checked: a line for each reason of a member.
func (d *diagnosis) gaps() (out []string) {
	type reason struct{ member, why string }
	var order []reason
	checks := map[reason][]string{}
	for _, u := range d.Unchecked {
		k := reason{u.Member, u.Why}
		if checks[k] == nil {
			order = append(order, k)
		}
		if u.Check == "" {
			u.Check = "everything"
		}
		checks[k] = append(checks[k], u.Check)
	}
	for _, k := range order {
		text := strings.Join(checks[k], ", ") + ": " + k.why
		if k.member != "" {
			text = k.member + ", " + text
		}
		out = append(out, text)
	}
	return out
}

// findPages returns the directory that has the pages of a program, with a slash, or "": those of a package and of an archive are
// next to its directory.
func findPages(program string) string {
	for _, dir := range []string{"../share/doc/vigil", ".."} {
		dir = filepath.Join(filepath.Dir(program), dir)
		if _, err := os.Stat(filepath.Join(dir, "docs", "operations", "doctor.md")); err == nil {
			return dir + string(filepath.Separator)
		}
	}
	return ""
}

// sorted joins texts in order.
func sorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, "; ")
}
