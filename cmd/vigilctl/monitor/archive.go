package monitor

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
	"vigil/cmd/vigilctl/survey"
	"vigil/internal/amount"
	"vigil/internal/debugpage"
)

const archiveStatusHelp = `Print what each member does for the continuous archive (--archive of vigil), how far the
archive is, and why it fails.

STATE is archiving (this member sends), standby (another one does), starting (this member
is to send, and finds out what the bucket has), failing (it is to send and cannot),
refused (the bucket is not one that this cluster may write to), unknown (the member has
not reached the bucket yet) or none (the member has no archive).
LAG is for how long there have been writes that are not in the archive, as far as the
member knows; the leader and the member that sends know it exactly. HELD is how many
entries of the raft log are kept for the archive.

The members are those of --endpoints, or with --cluster all. With auth enabled the
command needs --user with the role root.

Exit codes: 0 the archive is complete up to a minute ago, 1 it is not, or no member
answers, 128 bad arguments.`

// lateArchive is the lag at which the command fails.
const lateArchive = time.Minute

// archived is one member's report about the archive.
type archived struct {
	Member string `json:"member"`
	debugpage.Archive
}

// archiveList has all members' reports about the archive.
type archiveList struct {
	Members []archived     `json:"members"`
	Failed  []failedMember `json:"failed,omitempty"`
}

// ArchiveStatus returns the command archive status.
func ArchiveStatus(env *cli.Env) *cobra.Command {
	s := survey.Survey{Env: env}
	c := &cobra.Command{
		Use:     "status [options]",
		Short:   "Print how far the archive is, and which member sends",
		Long:    archiveStatusHelp,
		Example: "  vigilctl archive status --cluster\n  vigilctl archive status --cluster -w json | jq '.members[] | select(.leader) | .lag_seconds'",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usage("archive status takes no arguments: the members are those of --endpoints")
			}
			p, err := env.Printer(show.Simple, show.Table, show.JSON, show.YAML)
			if err != nil {
				return err
			}
			return s.Run(c, func(ctx context.Context) error {
				list, err := collectArchive(ctx, &s)
				if err != nil {
					return err
				}
				if p.Format == show.Simple {
					err = list.printReports(env)
				} else {
					err = env.Print(show.Answer{Value: list, Table: list.table})
				}
				if err == nil {
					err = list.checkComplete()
				}
				return err
			})
		},
	}
	s.AddFlags(c)
	return c
}

func collectArchive(ctx context.Context, s *survey.Survey) (*archiveList, error) {
	answers := make([]*debugpage.Archive, len(s.Members))
	errs := make([]error, len(s.Members))
	s.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		answers[i],
			errs[i] = m.Archive(ctx)
	})
	list := &archiveList{Members: []archived{}}
	for i, m := range s.Members {
		switch {
		case errors.Is(errs[i], probe.ErrNotFound):
			list.Members = append(list.Members,
				archived{m.Endpoint, debugpage.Archive{State: debugpage.ArchiveNone}})
		case errs[i] != nil:
			list.Failed = append(list.Failed, failedMember{m.Endpoint, survey.ErrorLine(errs[i])})
		default:
			list.Members = append(list.Members, archived{m.Endpoint, *answers[i]})
		}
	}
	if len(list.Members) == 0 && len(list.Failed) > 0 {
		return nil, fmt.Errorf("%s: %s", list.Failed[0].Member, list.Failed[0].Reason)
	}
	return list, nil
}

// checkComplete returns an error unless the archive is complete up to a minute ago. It uses the
// report of the leader, or else the most favorable one.
func (l *archiveList) checkComplete() error {
	var best *archived
	for i := range l.Members {
		m := &l.Members[i]
		switch {
		case m.State == debugpage.ArchiveNone:
		case m.State == debugpage.ArchiveRefused:
			return exit.With(exit.Failure, fmt.Errorf("%s: %s", m.Member, m.Error))
		case m.Leader, best == nil, !best.Leader && m.LagSeconds < best.LagSeconds:
			best = m
		}
	}
	switch {
	case best == nil:
		return exit.With(exit.Failure,
			errors.New("no member has an archive: start all members with --archive"))
	case best.LagSeconds >= lateArchive.Seconds():
		return exit.With(exit.Failure,
			fmt.Errorf("%s: writes of the last %v are not archived", best.Member,
				seconds(best.LagSeconds)))
	case best.ArchivedIndex == 0:
		return exit.With(exit.Failure,
			fmt.Errorf("%s: it is not known yet what is archived", best.Member))
	}
	return nil
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Truncate(time.Second)
}

func (l *archiveList) table() (heading []string, rows [][]string) {
	for _, m := range l.Members {
		role := ""
		if m.Leader {
			role = "leader"
		}
		base := ""
		if b := m.Base; b != nil {
			base = fmt.Sprintf("%d (%s, %s)", b.Revision, b.Time.UTC().Format(time.DateTime),
				amount.Bytes(b.Bytes))
		}
		rows = append(rows, []string{screen.Safe(m.Member), role, screen.Safe(string(m.State)),
			seconds(m.LagSeconds).String(), fmt.Sprint(m.LagRevisions),
			fmt.Sprint(m.ArchivedRevision),
			fmt.Sprint(m.ArchivedIndex), fmt.Sprint(m.HeldEntries), base, fmt.Sprint(m.Gaps),
			screen.Safe(m.Error)})
	}
	return []string{"MEMBER", "ROLE", "STATE", "LAG", "REVISIONS", "ARCHIVED", "INDEX", "HELD",
		"BASE", "GAPS", "ERROR"}, rows
}

func (l *archiveList) printReports(env *cli.Env) error {
	w := tabwriter.NewWriter(env.Stdout, 0, 8, 2, ' ', 0)
	heading, rows := l.table()
	for _, row := range append([][]string{heading}, rows...) {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, m := range l.Members {
		if m.Archive.Archive != "" {
			_, err := fmt.Fprintf(env.Stdout, "\narchive %s (%s)\n", screen.Safe(m.Archive.Archive),
				screen.Safe(m.ID))
			if g := m.Gap; err == nil && g != nil {
				_, err = fmt.Fprintf(env.Stdout, "the newest gap: entries %d to %d, found %s\n",
					g.First, g.Last, g.Time.UTC().Format(time.DateTime))
			}
			if err != nil {
				return err
			}
			break
		}
	}
	for _, f := range l.Failed {
		if _, err := fmt.Fprintf(env.Stdout, "%s: %s\n", f.Member, f.Reason); err != nil {
			return err
		}
	}
	return nil
}
