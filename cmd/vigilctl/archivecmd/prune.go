package archivecmd

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/facts"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/amount"
	"vigil/internal/offline/archived"
	"vigil/internal/vfs"
)

const pruneHelp = `Remove the objects of an archive that no rule keeps.

--keep-all keeps every state of a period: each revision and each moment of it can be
restored. --keep-hourly, --keep-daily and --keep-weekly keep the newest base state of
each hour, day and week of theirs; the entries between these are removed, so the
states between them cannot be restored any more. A state is kept if any rule keeps it.

Ages are counted from the newest object, by the clock of the bucket. The newest state
that can be restored is always kept with the entries after it, and no object is removed
that a kept state needs. Objects that the bucket locks are left, and named.

--dry-run only prints what would be removed. Run it first. On a terminal the command
asks before it removes anything.

Exit codes: 0 done, 1 an error: what was not removed yet remains, 2 some objects are
locked, 128 bad arguments.`

// Prune returns the command archive prune.
func Prune(env *cli.Env) *cobra.Command {
	var s source
	var yes cli.Yes
	var out *facts.Format
	var dry bool
	var all, hourly, daily, weekly period
	c := &cobra.Command{
		Use:     "prune URL --keep-all PERIOD",
		Short:   "Remove the objects of an archive that no rule keeps",
		Long:    pruneHelp,
		Example: "  vigilctl archive prune file:///srv/archive --keep-all 2d --keep-hourly 14d --keep-daily 90d --dry-run",
		Args:    command.ExactlyOne("archive prune"),
		RunE: func(c *cobra.Command, args []string) error {
			rules := archived.Rules{All: time.Duration(all), Hourly: time.Duration(hourly),
				Daily: time.Duration(daily), Weekly: time.Duration(weekly)}
			if err := rules.Validate(); err != nil {
				return exit.Usage("%v", err)
			}
			return s.openArchive(c, args[0], vfs.OS(), func(a *archived.Archive) error {
				p, err := a.PlanPrune(c.Context(), rules, time.Now())
				if err != nil {
					return err
				}
				if n := len(p.Remove); n > 0 && !dry && env.Asks(yes) {
					question := fmt.Sprintf("This removes %s of the archive. The states that are only in them cannot be restored any more. Remove them?", amount.Count(n, "object"))
					if err := env.Confirm(c.Context(), "nothing was removed",
						question); err != nil {
						return err
					}
				}
				return prune(c, p, dry, out)
			})
		},
	}
	s.addFlags(c)
	flags := c.Flags()
	flags.Var(&all, "keep-all", "keep every state of this `PERIOD`, for instance 2d")
	flags.Var(&hourly, "keep-hourly", "keep a state of each hour of this `PERIOD`")
	flags.Var(&daily, "keep-daily", "keep a state of each day of this `PERIOD`")
	flags.Var(&weekly, "keep-weekly", "keep a state of each week of this `PERIOD`")
	flags.BoolVar(&dry, "dry-run", false, "only print what would be removed")
	yes.AddFlag(c)
	out = facts.Add(flags, "how to print: simple or json", show.Simple, show.JSON)
	return c
}

func prune(c *cobra.Command, p *archived.PrunePlan, dry bool, out *facts.Format) (err error) {
	var done archived.Pruned
	if !dry {
		done, err = p.Run(c.Context())
	}
	if err := printPrune(c.OutOrStdout(), p, done, dry, out); err != nil {
		return err
	}
	switch {
	case err != nil:
		return err
	case len(done.Locked) > 0:
		return exit.Silent(incomplete)
	}
	return nil
}

func printPrune(w io.Writer, p *archived.PrunePlan, done archived.Pruned, dry bool,
	out *facts.Format) error {
	if out.Format == show.JSON {
		return printJSON(w, struct {
			*archived.PrunePlan
			DryRun bool `json:"dryRun"`
			archived.Pruned
		}{p, dry, done})
	}
	for _, k := range p.Keep {
		fmt.Fprintf(w, "keep %s, revision %d of %s (%s)\n", k.Name, k.Revision,
			k.Time.Format(time.RFC3339), strings.Join(k.Reasons, ", "))
	}
	for _, name := range done.Locked {
		fmt.Fprintf(w, "LOCKED %s\n", name)
	}
	if dry {
		for _, name := range p.Remove {
			fmt.Fprintf(w, "would remove %s\n", name)
		}
	}
	fmt.Fprintf(w, "every state from index %d on is kept; ages count from %s\n", p.From,
		p.Now.UTC().Format(time.RFC3339))
	verb, n := "removed", done.Removed
	switch {
	case dry:
		verb, n = "would remove", len(p.Remove)
	case n < len(p.Remove):
		_, err := fmt.Fprintf(w, "removed %d of the %d objects that no rule keeps\n",
			n, len(p.Remove))
		return err
	}
	_, err := fmt.Fprintf(w, "%s %d objects of %d, %s of %s\n", verb, n,
		len(p.Remove)+p.KeptObjects, amount.Bytes(p.Bytes), amount.Bytes(p.Bytes+p.KeptBytes))
	return err
}

// period is a duration whose unit may also be days (d) or weeks (w).
type period time.Duration

// String implements pflag.Value.
func (p *period) String() string {
	if *p == 0 {
		return ""
	}
	return time.Duration(*p).String()
}

// Type implements pflag.Value.
func (p *period) Type() string { return "PERIOD" }

// Set implements pflag.Value.
func (p *period) Set(text string) error {
	unit, number := time.Duration(0), text
	if n := len(text) - 1; n > 0 && text[n] == 'd' {
		unit, number = 24*time.Hour, text[:n]
	} else if n > 0 && text[n] == 'w' {
		unit, number = 7*24*time.Hour, text[:n]
	}
	if unit > 0 {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return fmt.Errorf("%q is not a period: want one such as 36h, 14d or 8w", text)
		}
		*p = period(time.Duration(n) * unit)
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is not a period: want one such as 36h, 14d or 8w", text)
	}
	*p = period(d)
	return nil
}
