package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/show"
	"vigil/internal/offline/snapshot"
)

func (a *app) snapshotCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "snapshot <subcommand>",
		Short: "Take, inspect and restore backups in etcd's format",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.snapshotSaveCommand(), snapshotStatusCommand(), snapshotRestoreCommand())
	return c
}

const snapshotStatusHelp = `Read a backup and print its hash, revision, number of keys, size and storage version.

FILE is what snapshot save has written, of this program or of etcd 3.4 to 3.7, or
the database of an etcd member that is not running (member/snap/db). Every page
that holds data is read and checked; what is damaged is named. The hash is the one
that etcdutl prints, and not the SHA-256 behind the file, which restore compares.`

func snapshotStatusCommand() *cobra.Command {
	var out backupFormat
	c := &cobra.Command{
		Use:     "status FILE",
		Short:   "Read a backup and tell what it holds",
		Long:    snapshotStatusHelp,
		Example: "  vigilctl snapshot status backup.db\n  vigilctl snapshot status backup.db -w table",
		Args:    exactlyOne("snapshot status"),
		RunE: func(c *cobra.Command, args []string) error {
			st, err := snapshotStatus(c, args[0], format(out))
			if err != nil {
				return &exit{exitFailure, err}
			}
			return printStatus(c.OutOrStdout(), st, out)
		},
	}
	out.addTo(c.Flags())
	return c
}

func exactlyOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return badArgs("%s requires exactly one argument, not %d; see vigilctl %s --help", name, len(args), name)
		}
		return nil
	}
}

func snapshotStatus(c *cobra.Command, name string, out format) (snapshot.Status, error) {
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
		return snapshot.Status{}, fmt.Errorf("%s is not a file", name)
	}
	p := newWork(c.ErrOrStderr(), out)
	defer p.end()
	var done int64
	st, err := snapshot.ReadStatus(f, fi.Size(), func(n int64) {
		done += n
		p.show("reading "+name, done, fi.Size())
	})
	if err != nil {
		return st, fmt.Errorf("%s: %w", name, err)
	}
	return st, nil
}

func printStatus(w io.Writer, st snapshot.Status, out backupFormat) error {
	return out.print(w, st, []field{
		{"Hash", "hash", fmt.Sprintf("%x", st.Hash), st.Hash},
		{"Revision", "revision", fmt.Sprint(st.Revision), st.Revision},
		{"Keys", "total keys", fmt.Sprint(st.TotalKey), st.TotalKey},
		{"Size", "total size", show.Size(st.TotalSize), st.TotalSize},
		{"Version", "version", st.Version, st.Version},
	})
}
