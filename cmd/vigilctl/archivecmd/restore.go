package archivecmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/newdata"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/offline/archived"
)

const restoreHelp = `Restore a state of an archive: into the data directory of a member of a new cluster, or
only the keys with a prefix into a running cluster or a file.

The state is the newest one (--latest), the one right after a revision was made
(--to-revision), the one of a time (--to-time), or the one after an entry of the raft
log (--to-index). At a time, the newest revision is restored that was made at or before
it.

A new cluster. A cluster of several members is restored by running this once for each
of them, with the same target, --initial-cluster and --initial-cluster-token, and with
its own --name and --initial-advertise-peer-urls. If the archive may still grow, use
--to-index with the index that the first run prints: members with different states
reject each other. The command writes nothing into a directory that is not empty, and
leaves no files after an error.

Clients may have seen later revisions than those that are restored. So the revision is
raised by --bump-revision, and everything up to that is compacted: clients and their
watchers receive the error that their revision is compacted, and read the data again.
--bump-revision 0 keeps the revisions, for a look at the past.

Keys in a running cluster. With --prefix, the keys of --endpoints are compared with
those of the archive: first the command prints what would change, and asks; --dry-run
ends there, and --yes does not ask. Then it creates keys that are missing and changes
those with another value, each only if it is still as it was when the plan was made.
A key that somebody else has changed meanwhile is left and printed with CONFLICT. Keys
that did not exist then are left too, unless --delete-new is given. After an
interruption run the same command again: it does the rest. An empty prefix means all
keys.

Keys keep the leases that they had if these still exist. A key whose lease has ended is
created without one, so that it does not expire, or left out with --skip-leased; if it
exists now, it keeps its present lease. Users and roles are not restored.

Keys in a file. --dump writes the keys with their leases as vigilctl dump does; vigilctl
load puts them into a cluster, and jq and grep read them.

--prefix takes the space of the whole store in a temporary directory, below TMPDIR if
that is set. With -w json it prints a line for each of the first changes, for the plan,
for each conflict, and for the result.

Objects that are damaged are not used. If others have the same entries or an earlier
state can be used, nothing is lost; otherwise --latest restores the newest state that
it can and says what is missing. The command changes nothing in the bucket.

Exit codes: 0 restored, 1 not restored or only in part, 2 restored, but the state is not
the newest of the archive, 5 interrupted, 6 restored except for conflicts, 128 bad
arguments.`

const restoreExample = `  vigilctl archive restore file:///srv/archive --latest --data-dir /var/lib/vigil
  vigilctl archive restore 's3://backups?prefix=prod/' --to-time 2026-11-24T10:42:00Z --data-dir m1.etcd \
      --name m1 --initial-cluster m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380 \
      --initial-advertise-peer-urls http://10.0.0.1:2380
  vigilctl archive restore file:///srv/archive --to-time 10:42 --prefix config/ --dry-run
  vigilctl archive restore file:///srv/archive --to-time 10:42 --prefix config/ --dump - | jq -r .key`

// defaultBump exceeds the number of revisions that a cluster makes between a restored state and its
// loss.
const defaultBump = 1_000_000_000

// target has the flags that choose a state.
type target struct {
	latest bool
	time   cli.Time
	archived.Target
}

func (t *target) addFlags(c *cobra.Command) {
	flags := c.Flags()
	flags.BoolVar(&t.latest, "latest", false, "restore the newest state")
	flags.Int64Var(&t.Revision, "to-revision", 0,
		"restore the state right after this `REVISION` was made")
	flags.Uint64Var(&t.Index, "to-index", 0, "restore the state after the entry with this `INDEX`")
	flags.Var(&t.time, "to-time", "restore the state at a `TIME`: "+cli.TimeFormats)
	c.MarkFlagsMutuallyExclusive("latest", "to-revision", "to-index", "to-time")
}

func (t *target) checkFlags() error {
	t.Time = t.time.At()
	switch {
	case t.Revision < 0:
		return exit.Usage("--to-revision %d is negative", t.Revision)
	case !t.latest && t.Target == archived.Target{}:
		return exit.Usage("which state? give --latest, --to-revision, --to-time or --to-index")
	}
	return nil
}

// Restore returns the command archive restore.
func Restore(env *cli.Env) *cobra.Command {
	var s source
	var t target
	var f newdata.Flags
	k := keys{env: env}
	c := &cobra.Command{
		Use:     "restore URL --latest --data-dir DIR",
		Short:   "Restore any state of an archive into a data directory, or keys of it into a running cluster",
		Long:    restoreHelp,
		Example: restoreExample,
		Args:    command.ExactlyOne("archive restore"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := t.checkFlags(); err != nil {
				return err
			}
			if err := k.checkFlags(c.Flags().Changed); err != nil {
				return err
			}
			if c.Flags().Changed("prefix") {
				return s.readArchive(c, args[0],
					func(a *archived.Archive) error { return k.restoreKeys(c, a, &t) })
			}
			f.Options.MarkCompacted = f.Options.BumpRevision > 0
			if err := f.Resolve(); err != nil {
				return err
			}
			return s.readArchive(c, args[0],
				func(a *archived.Archive) error { return restoreState(c, a, &t, &f) })
		},
	}
	s.addFlags(c)
	t.addFlags(c)
	f.Add(c, defaultBump)
	k.out = f.Out
	k.addFlags(c)
	return c
}

func restoreState(c *cobra.Command, a *archived.Archive, t *target, f *newdata.Flags) error {
	p := progress.NewBytes(c.ErrOrStderr(), f.Out.Format == show.JSON)
	f.Options.Progress = p.Set
	sum, res, err := a.Restore(c.Context(), t.Target, f.Options)
	p.End()
	w := c.ErrOrStderr()
	printDamages(w, res.Damages)
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; nothing was restored")
	case err != nil:
		return err
	}
	if err := f.Print(c.OutOrStdout(), &sum); err != nil {
		return err
	}
	fmt.Fprintf(w, "restored the state of revision %d, index %d: %s and %d entries\n", res.Revision,
		res.Index, res.Base, sum.Replayed)
	sum.Replayed = 0
	f.Advise(w, &sum)
	for _, m := range res.Missing {
		fmt.Fprintf(w, "MISSING %s\n", m)
	}
	if len(res.Missing) > 0 {
		return exit.With(incomplete,
			errors.New("not all of the archive is restored: see MISSING above"))
	}
	return nil
}
