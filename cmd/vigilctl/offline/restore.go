package offline

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/newdata"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/offline/restore"
)

const snapshotRestoreHelp = `Build the data directory of a member of a new cluster out of a backup.

SOURCE is a file that snapshot save has written, of this program or of etcd 3.4 to
3.7, or the data directory of an etcd member that is not running: then entries
that are only in its raft log are restored too. Every revision in the backup is
kept, with leases, users and roles; the members are those of --initial-cluster.

Of an etcd cluster of several members give the directories of all that can be
read, or of more than half: the one whose raft log ends with the highest term, and
with the highest index of that term, is restored. It has everything that was
acknowledged; a directory with a higher revision may lack it.

A cluster of several members is restored by running this once for each of them,
with the same SOURCE, --initial-cluster and --initial-cluster-token, and with its
own --name and --initial-advertise-peer-urls. Then start them.

If the cluster replaces one that clients used after the backup was made, its
revisions decrease: a client that has seen later revisions mistakes new writes at
these revisions for data that it knows. Use --bump-revision with a number larger
than the number of revisions since the backup, and --mark-compacted: then clients
and their watchers receive the error that their revision is compacted, and read
the data again.

The command writes nothing into a directory that is not empty, and leaves no files
after an error.

Exit codes: 0 restored, 1 not restored, 128 bad arguments.`

const snapshotRestoreExample = `  vigilctl snapshot restore backup.db --data-dir /var/lib/vigil
  vigilctl snapshot restore backup.db --name m1 --data-dir m1.etcd \
      --initial-cluster m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380,m3=http://10.0.0.3:2380 \
      --initial-cluster-token restored-1 --initial-advertise-peer-urls http://10.0.0.1:2380 \
      --bump-revision 1000000000 --mark-compacted
  vigilctl snapshot restore /var/lib/etcd --name m1 --data-dir /var/lib/vigil
  vigilctl snapshot restore etcd-1 etcd-2 etcd-3 --name m1 --data-dir /var/lib/vigil`

// SnapshotRestore returns the command snapshot restore.
func SnapshotRestore() *cobra.Command {
	var f newdata.Flags
	var mmap uint64
	c := &cobra.Command{
		Use:     "restore SOURCE... --data-dir DIR",
		Short:   "Build a data directory out of a backup or of an etcd member's data",
		Long:    snapshotRestoreHelp,
		Example: snapshotRestoreExample,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return nil
			}
			return command.ExactlyOne("snapshot restore")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkSources(args); err != nil {
				return err
			}
			f.Options.Source = filepath.Clean(args[0])
			for _, other := range args[1:] {
				f.Options.Others = append(f.Options.Others, filepath.Clean(other))
			}
			return runRestore(c, &f)
		},
	}
	f.Add(c, 0)
	flags, o := c.Flags(), &f.Options
	flags.BoolVar(&o.SkipHash, "skip-hash-check", false,
		"accept a file without a SHA-256 at its end, or with a wrong one: a copy from a data directory")
	flags.BoolVar(&o.SkipRejected, "skip-rejected", false,
		"restore an etcd member's data without the requests in its raft log that exceed a limit of this program")
	flags.StringVar(&o.SourceWAL, "source-wal-dir", "",
		"the directory of the raft log of the etcd member, if not SOURCE/member/wal")
	flags.BoolVar(&o.MarkCompacted, "mark-compacted", false,
		"compact everything up to the raised revision (required if --bump-revision > 0, disallowed otherwise)")
	flags.Uint64Var(&mmap, "initial-memory-map-size", 0,
		"accepted for compatibility and without effect: the file is not mapped")
	return c
}

// checkSources rejects a file together with a second argument, which is probably the directory
// to build.
func checkSources(args []string) error {
	if len(args) != 2 {
		return nil
	}
	for i, a := range args {
		other := args[1-i]
		if isRegular(a) && !isRegular(other) {
			return exit.Usage("of several sources each is the data directory of an etcd member, and %s is a file; the directory to build is a flag: vigilctl snapshot restore --data-dir %s %s", a, command.QuoteWords(other), command.QuoteArgs(a))
		}
	}
	return nil
}

func isRegular(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func runRestore(c *cobra.Command, f *newdata.Flags) error {
	if err := f.Resolve(); err != nil {
		return err
	}
	p := progress.NewBytes(c.ErrOrStderr(), f.Out.Format == show.JSON)
	f.Options.Progress = p.Set
	res, err := restore.Run(c.Context(), f.Options)
	p.End()
	switch {
	case errors.Is(err, context.Canceled):
		return exit.With(exit.Failure, errors.New("interrupted; nothing was restored"))
	case err != nil:
		return exit.With(exit.Failure, err)
	}
	if err := f.Print(c.OutOrStdout(), &res); err != nil {
		return exit.With(exit.Failure, err)
	}
	f.Advise(c.ErrOrStderr(), &res)
	return nil
}
