package offline

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/facts"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/offline/snapshot"
)

const snapshotStatusHelp = `Read a backup and print its hash, revision, number of keys, size and storage version.

FILE is what snapshot save has written, of this program or of etcd 3.4 to 3.7, or
the database of an etcd member that is not running (member/snap/db). Every page
that holds data is read and checked; damage is reported. The hash is the one that
etcdutl prints, not the SHA-256 at the end of the file, which restore compares.`

// SnapshotStatus returns the command snapshot status.
func SnapshotStatus() *cobra.Command {
	var out *facts.Format
	c := &cobra.Command{
		Use:     "status FILE",
		Short:   "Read a backup and print a summary",
		Long:    snapshotStatusHelp,
		Example: "  vigilctl snapshot status backup.db\n  vigilctl snapshot status backup.db -w table",
		Args:    command.ExactlyOne("snapshot status"),
		RunE: func(c *cobra.Command, args []string) error {
			st, err := readStatus(c, args[0], out.Format == show.JSON)
			if err != nil {
				return exit.With(exit.Failure, err)
			}
			return printStatus(c.OutOrStdout(), st, out)
		},
	}
	out = facts.AddFacts(c.Flags())
	return c
}

// readStatus reads a backup.
func readStatus(c *cobra.Command, name string, quiet bool) (snapshot.Status, error) {
	f, err := os.Open(name)
	if err != nil {
		return snapshot.Status{}, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return snapshot.Status{}, err
	}
	if !fi.Mode().IsRegular() {
		return snapshot.Status{},
			fmt.Errorf("%s is not a file: check DIR checks a data directory", name)
	}
	p := progress.NewBytes(c.ErrOrStderr(), quiet)
	defer p.End()
	var done int64
	st, err := snapshot.ReadStatus(f, fi.Size(), func(n int64) {
		done += n
		p.Set("reading "+name, done, fi.Size())
	})
	if err != nil {
		return st, fmt.Errorf("%s: %w", name, err)
	}
	return st, nil
}

func printStatus(w io.Writer, st snapshot.Status, out *facts.Format) error {
	return out.Facts(w, st, []facts.Fact{
		facts.New("Hash", "hash", fmt.Sprintf("%x", st.Hash), st.Hash),
		facts.New("Revision", "revision", fmt.Sprint(st.Revision), st.Revision),
		facts.New("Keys", "total keys", fmt.Sprint(st.TotalKey), st.TotalKey),
		facts.New("Size", "total size", show.Size(st.TotalSize), st.TotalSize),
		facts.New("Version", "version", st.Version, st.Version),
	})
}
