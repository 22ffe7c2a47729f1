// Package doctor has the command doctor: it measures all members and prints the findings of package
// health.
package doctor

import (
	"cmp"
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
	"vigil/internal/amount"
	"vigil/internal/health"
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
			e := &health.Examination{Omit: map[string]string{}}
			var err error
			if e.Limits, err = parseLimits(limit); err == nil {
				err = validateChecks(skip)
			}
			if err != nil {
				return err
			}
			for _, name := range skip {
				e.Omit[name] = "omitted by --skip"
			}
			p, err := env.Printer(show.Simple, show.JSON, show.YAML)
			if err != nil {
				return err
			}
			return l.Run(c, func(ctx context.Context) error {
				return diagnoseMembers(ctx, e, &l,
					p)
			})
		},
	}
	l.AddFlags(c)
	c.Flags().StringSliceVar(&skip, "skip", nil, "checks to leave out, separated by commas: "+
		strings.Join(checkNames(), ", "))
	c.Flags().StringSliceVar(&limit, "limit", nil, "NAME=VALUE, another limit of a check: "+
		strings.Join(limitNames(), ", "))
	return c
}

// diagnosis is the result of all checks in the form that is printed.
type diagnosis struct {
	*health.Diagnosis
	// the directory or the address of the pages, with a slash; empty if unknown
	pages string
}

func diagnoseMembers(ctx context.Context, e *health.Examination, l *survey.Survey,
	p *show.Printer) error {
	queryMembers(ctx, l, e)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d := &diagnosis{Diagnosis: e.Diagnose()}
	if program, err := os.Executable(); err == nil {
		d.pages = findPages(program)
	}
	if d.pages == "" && len(d.Findings) > 0 {
		d.pages = servedPages(ctx, l)
	}
	var err error
	if p.Format != show.Simple {
		err = l.Env.Print(show.Answer{Value: d.Diagnosis})
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
	styles := map[health.Severity]screen.Style{health.Critical: screen.Bad,
		health.Warning: screen.Warn, health.Note: screen.Plain}
	for _, f := range d.Findings {
		what := f.What
		if f.Member != "" {
			what = f.Member + ": " + what
		}
		add("", styles[f.Severity], strings.ToUpper(string(f.Severity))+"  "+what)
		add("    ", screen.Plain, "next: "+f.Next)
		// Keep it on one line: otherwise a terminal does not recognize the whole address.
		lines = append(lines, "    page: "+screen.Safe(d.pages+f.Page), "")
	}
	for _, c := range health.Checks() {
		if slices.Contains(d.Passed, c.Name) {
			text := "ok  " + c.About
			if len(d.Seen) > 0 && !c.Cluster {
				text += " (" + strings.Join(d.Seen, ", ") + ")"
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
	number := map[health.Severity]int{}
	for _, f := range d.Findings {
		number[f.Severity]++
	}
	verdict, style := "nothing is wrong", screen.Good
	if !d.Healthy {
		verdict, style = fmt.Sprintf("%d critical, %s", number[health.Critical],
			amount.Count(number[health.Warning], "warning")), screen.Bad
	}
	if number[health.Note] > 0 {
		verdict += ", " + amount.Count(number[health.Note], "note")
	}
	if len(d.Unchecked) > 0 {
		verdict += ", not everything was checked"
	}
	members := amount.Count(d.Members, "member")
	if d.Members == 0 {
		members = "members not known"
	}
	add("", style, fmt.Sprintf("%s, %s: %s", members, leader, verdict))
	return lines
}

// gaps returns the unchecked items: a line for each reason and member.
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

// pagesTimeout limits how long members may take to answer whether they serve the pages.
const pagesTimeout = time.Second

// servedPages returns the address of the pages at the first member that serves them, or "".
func servedPages(ctx context.Context, l *survey.Survey) string {
	ctx, cancel := context.WithTimeout(ctx, pagesTimeout)
	defer cancel()
	found := make([]string, len(l.Members))
	l.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		if at, err := m.Pages(ctx); err == nil {
			found[i] = at
		}
	})
	return cmp.Or(found...)
}

// findPages returns the directory with the pages of a program, with a slash, or "". A package and
// an archive put it next to the directory of the program.
func findPages(program string) string {
	for _, dir := range []string{"../share/doc/vigil", ".."} {
		dir = filepath.Join(filepath.Dir(program), dir)
		if _, err := os.Stat(filepath.Join(dir, "docs", "operations", "doctor.md")); err == nil {
			return dir + string(filepath.Separator)
		}
	}
	return ""
}
