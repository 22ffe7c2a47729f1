package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/offline/restore"
	"vigil/internal/state/cluster"
	"vigil/internal/vfs"
)

const snapshotRestoreHelp = `Build the data directory of a member of a new cluster out of a backup.

SOURCE is a file that snapshot save has written, of this program or of etcd 3.4 to
3.7, or the data directory of an etcd member that is not running: then entries
that are only in its raft log are restored too. Every revision in the backup is
kept, with leases, users and roles; the members are those of --initial-cluster.

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
  vigilctl snapshot restore /var/lib/etcd --name m1 --data-dir /var/lib/vigil`

// restoreFlags are the flags of snapshot restore that are not options of package restore.
type restoreFlags struct {
	cluster, peerURLs string
	mmap              uint64
	out               *format
}

// SnapshotRestore returns the command snapshot restore.
func SnapshotRestore() *cobra.Command {
	o := restore.Options{FS: vfs.OS()}
	var f restoreFlags
	c := &cobra.Command{
		Use:     "restore SOURCE --data-dir DIR",
		Short:   "Build a data directory out of a backup or of an etcd member's data",
		Long:    snapshotRestoreHelp,
		Example: snapshotRestoreExample,
		Args:    command.ExactlyOne("snapshot restore"),
		RunE: func(c *cobra.Command, args []string) error {
			o.Source = filepath.Clean(args[0])
			return runRestore(c, o, f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.DataDir, "data-dir", "", "the directory to build; default: NAME.etcd")
	flags.StringVar(&o.WALDir, "wal-dir", "", "the directory for the raft log, if not in --data-dir: it must be empty")
	flags.StringVar(&f.cluster, "initial-cluster", "default=http://localhost:2380", "the members of the new cluster, `NAME=URL,...`")
	flags.StringVar(&o.Token, "initial-cluster-token", "etcd-cluster", "distinguishes the new cluster from others with the same members")
	flags.StringVar(&f.peerURLs, "initial-advertise-peer-urls", "http://localhost:2380", "the `URLS` of this member in --initial-cluster")
	flags.StringVar(&o.Name, "name", "default", "the name of this member in --initial-cluster")
	flags.BoolVar(&o.SkipHash, "skip-hash-check", false, "accept a file without a SHA-256 at its end, or with a wrong one: a copy from a data directory")
	flags.BoolVar(&o.SkipRejected, "skip-rejected", false, "restore an etcd member's data without the requests in its raft log that exceed a limit of this program")
	flags.StringVar(&o.SourceWAL, "source-wal-dir", "", "the directory of the raft log of the etcd member, if not SOURCE/member/wal")
	flags.Uint64Var(&o.BumpRevision, "bump-revision", 0, "the number to add to the newest revision")
	flags.BoolVar(&o.MarkCompacted, "mark-compacted", false, "compact everything up to the raised revision (required if --bump-revision > 0, disallowed otherwise)")
	flags.Uint64Var(&f.mmap, "initial-memory-map-size", 0, "accepted for compatibility and without effect: the file is not mapped")
	f.out = addFactsFormat(flags)
	return c
}

func runRestore(c *cobra.Command, o restore.Options, f restoreFlags) error {
	if o.DataDir == "" {
		o.DataDir = o.Name + ".etcd"
	}
	if (o.BumpRevision > 0) != o.MarkCompacted {
		return exit.Usage("--mark-compacted required if --bump-revision > 0")
	}
	var err error
	if o.Members, err = restore.ParseMembers(f.cluster); err != nil {
		return fmt.Errorf("--initial-cluster: %w", err)
	}
	if err := checkMember(&o, &f); err != nil {
		return err
	}
	p := progress.NewBytes(c.ErrOrStderr(), f.out.Format == show.JSON)
	o.Progress = p.Set
	res, err := restore.Run(c.Context(), o)
	p.End()
	switch {
	case errors.Is(err, context.Canceled):
		return exit.With(exit.Failure, errors.New("interrupted; nothing was restored"))
	case err != nil:
		return exit.With(exit.Failure, err)
	}
	if err := printRestored(c.OutOrStdout(), &o, &res, f.out); err != nil {
		return exit.With(exit.Failure, err)
	}
	advise(c.ErrOrStderr(), &o, &res)
	return nil
}

// checkMember checks that --initial-cluster has the member with its peer URLs.
func checkMember(o *restore.Options, f *restoreFlags) error {
	urls, err := restore.ParseURLs(f.peerURLs)
	if err != nil {
		return fmt.Errorf("--initial-advertise-peer-urls: %w", err)
	}
	i := slices.IndexFunc(o.Members, func(m cluster.Member) bool { return m.Name == o.Name })
	if i < 0 {
		return fmt.Errorf("couldn't find local name %q in the initial cluster configuration: --initial-cluster=%s must list the member --name", o.Name, f.cluster)
	}
	if !slices.Equal(urls, o.Members[i].PeerURLs) {
		return fmt.Errorf("--initial-cluster has %s for %q, and --initial-advertise-peer-urls has %s: they must be equal",
			strings.Join(o.Members[i].PeerURLs, ","), o.Name, strings.Join(urls, ","))
	}
	return nil
}

func printRestored(w io.Writer, o *restore.Options, r *restore.Summary, out *format) error {
	if out.Format == show.Simple {
		compact := "not compacted"
		if r.Compact > 0 {
			compact = fmt.Sprintf("compacted at %d", r.Compact)
		}
		_, err := fmt.Fprintf(w, "restored %s: member %x of cluster %x, revision %d, %s, %d records, %d leases, %d users, %d roles\n",
			o.DataDir, r.MemberID, r.ClusterID, r.Revision, compact, r.Records, r.Leases, r.Users, r.Roles)
		return err
	}
	return out.printFacts(w, struct {
		DataDir         string `json:"dataDir"`
		ClusterID       string `json:"clusterID"`
		MemberID        string `json:"memberID"`
		Revision        int64  `json:"revision"`
		CompactRevision int64  `json:"compactRevision"`
		Records         int64  `json:"records"`
		Leases          int    `json:"leases"`
		Users           int    `json:"users"`
		Roles           int    `json:"roles"`
		AuthEnabled     bool   `json:"authEnabled"`
		Replayed        int    `json:"replayedEntries"`
	}{o.DataDir, fmt.Sprintf("%x", r.ClusterID), fmt.Sprintf("%x", r.MemberID), r.Revision, r.Compact, r.Records, r.Leases, r.Users, r.Roles, r.AuthEnabled, r.Replayed}, []fact{
		{"DataDir", "data dir", o.DataDir, o.DataDir},
		{"ClusterID", "cluster", fmt.Sprintf("%x", r.ClusterID), r.ClusterID},
		{"MemberID", "member", fmt.Sprintf("%x", r.MemberID), r.MemberID},
		{"Revision", "revision", fmt.Sprint(r.Revision), r.Revision},
		{"CompactRevision", "compact revision", fmt.Sprint(r.Compact), r.Compact},
		{"Records", "records", fmt.Sprint(r.Records), r.Records},
		{"Leases", "leases", fmt.Sprint(r.Leases), r.Leases},
		{"Users", "users", fmt.Sprint(r.Users), r.Users},
		{"Roles", "roles", fmt.Sprint(r.Roles), r.Roles},
	})
}

// advise prints notes and warnings about the restored data for the operator.
func advise(w io.Writer, o *restore.Options, r *restore.Summary) {
	for _, m := range r.Members {
		fmt.Fprintf(w, "added member %x (%s) to cluster %x: %s\n", m.ID, m.Name, r.ClusterID, strings.Join(m.PeerURLs, ","))
	}
	if r.Replayed > 0 {
		fmt.Fprintf(w, "note: %d entries of the raft log had not reached the database and were applied, up to index %d\n", r.Replayed, r.Index)
	}
	if r.Torn > 0 {
		fmt.Fprintf(w, "note: a crash has left %d bytes of an entry at the end of the raft log; the entry was not acknowledged\n", r.Torn)
	}
	for _, x := range r.Rejected {
		fmt.Fprintf(w, "WARNING: requests of the raft log are not restored: %v\n", x)
	}
	for _, a := range r.Alarms {
		fmt.Fprintf(w, "note: the alarm %s of member %x is not restored: it is about the old cluster. A member raises its own\n", a.Type, a.MemberID)
	}
	if r.AuthEnabled {
		fmt.Fprintln(w, "note: authentication is enabled, with the users and passwords of the backup")
	}
	if o.BumpRevision == 0 {
		fmt.Fprintf(w, `WARNING: the new cluster continues at revision %d. If it replaces one that clients used after the
backup was made, they have seen later revisions, and will mistake new writes at these revisions
for data that they know: watches miss events and caches, those of Kubernetes too, stay stale.
In that case restore again with --bump-revision 1000000000 --mark-compacted.
`, r.Revision)
	}
}
