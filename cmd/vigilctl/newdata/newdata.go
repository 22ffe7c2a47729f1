// Package newdata has the parts that commands share which build a data directory: the flags of the
// new member, and the output.
package newdata

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/facts"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/offline/restore"
	"vigil/internal/state/cluster"
	"vigil/internal/vfs"
)

// Flags are the flags of a new member. After Resolve, Options is complete for package restore.
type Flags struct {
	Options restore.Options
	Out     *facts.Format

	cluster, peerURLs string
}

// Add declares the flags. bump is the default of --bump-revision.
func (f *Flags) Add(c *cobra.Command, bump uint64) {
	o := &f.Options
	o.FS = vfs.OS()
	flags := c.Flags()
	flags.StringVar(&o.DataDir, "data-dir", "", "the directory to build; default: NAME.etcd")
	flags.StringVar(&o.WALDir, "wal-dir", "",
		"the directory for the raft log, if not in --data-dir: it must be empty")
	flags.StringVar(&f.cluster, "initial-cluster", "default=http://localhost:2380",
		"the members of the new cluster, `NAME=URL,...`")
	flags.StringVar(&o.Token, "initial-cluster-token", "etcd-cluster",
		"distinguishes the new cluster from others with the same members")
	flags.StringVar(&f.peerURLs, "initial-advertise-peer-urls", "http://localhost:2380",
		"the `URLS` of this member in --initial-cluster")
	flags.StringVar(&o.Name, "name", "default", "the name of this member in --initial-cluster")
	flags.Uint64Var(&o.BumpRevision, "bump-revision", bump,
		"the number to add to the newest revision")
	f.Out = facts.AddFacts(flags)
}

// Resolve checks the flags and completes Options.
func (f *Flags) Resolve() (err error) {
	o := &f.Options
	if o.DataDir == "" {
		o.DataDir = o.Name + ".etcd"
	}
	if (o.BumpRevision > 0) != o.MarkCompacted {
		return exit.Usage("--mark-compacted required if --bump-revision > 0")
	}
	if o.Members, err = restore.ParseMembers(f.cluster); err != nil {
		return fmt.Errorf("--initial-cluster: %w", err)
	}
	return f.checkMember()
}

// checkMember checks that --initial-cluster has the member with its peer URLs.
func (f *Flags) checkMember() error {
	o := &f.Options
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

// Print prints the restored data.
func (f *Flags) Print(w io.Writer, r *restore.Summary) error {
	o, out := &f.Options, f.Out
	if out.Format == show.Simple {
		compact := "not compacted"
		if r.Compact > 0 {
			compact = fmt.Sprintf("compacted at %d", r.Compact)
		}
		_, err := fmt.Fprintf(w,
			"restored %s: member %x of cluster %x, revision %d, %s, %d records, %d leases, %d users, %d roles\n",
			o.DataDir, r.MemberID, r.ClusterID, r.Revision, compact, r.Records, r.Leases,
			r.Users, r.Roles)
		return err
	}
	return out.Facts(w, struct {
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
	}{o.DataDir, fmt.Sprintf("%x", r.ClusterID), fmt.Sprintf("%x", r.MemberID), r.Revision,
		r.Compact, r.Records, r.Leases, r.Users, r.Roles, r.AuthEnabled, r.Replayed}, []facts.Fact{
		facts.New("DataDir", "data dir", o.DataDir, o.DataDir),
		facts.New("ClusterID", "cluster", fmt.Sprintf("%x", r.ClusterID), r.ClusterID),
		facts.New("MemberID", "member", fmt.Sprintf("%x", r.MemberID), r.MemberID),
		facts.New("Revision", "revision", fmt.Sprint(r.Revision), r.Revision),
		facts.New("CompactRevision", "compact revision", fmt.Sprint(r.Compact), r.Compact),
		facts.New("Records", "records", fmt.Sprint(r.Records), r.Records),
		facts.New("Leases", "leases", fmt.Sprint(r.Leases), r.Leases),
		facts.New("Users", "users", fmt.Sprint(r.Users), r.Users),
		facts.New("Roles", "roles", fmt.Sprint(r.Roles), r.Roles),
	})
}

// Advise prints notes and warnings about the restored data for the operator.
func (f *Flags) Advise(w io.Writer, r *restore.Summary) {
	o := &f.Options
	for _, m := range r.Members {
		fmt.Fprintf(w, "added member %x (%s) to cluster %x: %s\n", m.ID, m.Name, r.ClusterID,
			strings.Join(m.PeerURLs, ","))
	}
	for _, p := range r.Positions {
		chosen := ""
		if len(r.Positions) > 1 && p.Source == r.Source {
			chosen = "; it is the newest, and is restored"
		}
		fmt.Fprintf(w, "note: the raft log of %s%s\n", p, chosen)
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
