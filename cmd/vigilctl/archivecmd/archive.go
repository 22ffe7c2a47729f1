// Package archivecmd has the commands on the archive of a cluster in a bucket: list, verify,
// restore and prune. They need no running member, except to restore keys into a cluster.
package archivecmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/facts"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/amount"
	"vigil/internal/bucket"
	"vigil/internal/offline/archived"
	"vigil/internal/vfs"
)

// incomplete is the exit code of a command that has done only part of its work.
const incomplete = 2

// source has the flags that locate an archive and decrypt its objects.
type source struct {
	keys    []string
	program string
}

func (s *source) addFlags(c *cobra.Command) {
	c.Flags().StringArrayVar(&s.keys, "identity", nil,
		"a `FILE` with private keys of age, for an encrypted archive")
	c.Flags().StringVar(&s.program, "bucket-program", "",
		"the program vigil-bucket; default: next to vigilctl, then in PATH")
}

// readArchive opens the archive at a URL for a command that only reads. It does not sync a
// directory, because that could fail on a damaged disk.
func (s *source) readArchive(c *cobra.Command, address string,
	run func(*archived.Archive) error) error {
	return s.openArchive(c, address, vfs.ReadOnly(vfs.OS()), run)
}

// openArchive opens the archive at a URL and runs a command with it. A directory is opened on fsys.
func (s *source) openArchive(c *cobra.Command, address string, fsys vfs.FS,
	run func(*archived.Archive) error) error {
	var keys []io.Reader
	for _, name := range s.keys {
		f, err := os.Open(name)
		if err != nil {
			return exit.With(exit.Failure, fmt.Errorf("--identity: %w", err))
		}
		defer f.Close()
		keys = append(keys, f)
	}
	b, err := bucket.Open(c.Context(), address, bucket.Options{FS: fsys, Program: s.program})
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	defer b.Close()
	a, err := archived.Open(c.Context(), b, bucket.Show(address), keys...)
	if err != nil {
		return exit.With(exit.Failure, err)
	}
	if err := run(a); err != nil {
		var coded *exit.Error
		if !errors.As(err, &coded) {
			err = exit.With(exit.Failure, err)
		}
		return err
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

const listHelp = `Print the states of an archive: for each base state its revision and time, and how far
the entries after it reach without a gap. Each revision in such a range can be
restored.

URL is the --archive of the members: file:///DIRECTORY, or the address of a bucket
for the program vigil-bucket.`

// List returns the command archive list.
func List() *cobra.Command {
	var s source
	var out *facts.Format
	c := &cobra.Command{
		Use:     "list URL",
		Short:   "Print the states that an archive has",
		Long:    listHelp,
		Example: "  vigilctl archive list file:///srv/archive\n  vigilctl archive list 's3://backups?prefix=prod/' -w json",
		Args:    command.ExactlyOne("archive list"),
		RunE: func(c *cobra.Command, args []string) error {
			return s.readArchive(c, args[0],
				func(a *archived.Archive) error { return list(c, a, out) })
		},
	}
	s.addFlags(c)
	out = facts.Add(c.Flags(), "how to print: table, simple (a line each, comma separated) or json",
		show.Table, show.Simple, show.JSON)
	return c
}

func list(c *cobra.Command, a *archived.Archive, out *facts.Format) error {
	states, err := a.States(c.Context())
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	if out.Format == show.JSON {
		return printJSON(w, struct {
			Archive   string            `json:"archive"`
			Cluster   string            `json:"cluster"`
			Created   time.Time         `json:"created"`
			Encrypted bool              `json:"encrypted"`
			States    []archived.Listed `json:"states"`
			Damages   []archived.Damage `json:"damages,omitempty"`
		}{a.Identity.Archive.String(), a.Identity.Cluster.String(), a.Identity.Created,
			len(a.Identity.Recipients) > 0, states, a.Damages()})
	}
	var rows [][]string
	for _, x := range states {
		rows = append(rows, []string{fmt.Sprint(x.Index), fmt.Sprint(x.Revision),
			x.Time.Format(time.RFC3339), amount.Bytes(x.Bytes), fmt.Sprint(x.Parts),
			fmt.Sprint(x.Logs), amount.Bytes(x.LogBytes), fmt.Sprint(x.End), x.State})
	}
	if err := out.Rows(w,
		[]string{"INDEX", "REVISION", "TIME", "BYTES", "PARTS", "LOGS", "LOG BYTES", "ENTRIES TO",
			"STATE"}, rows); err != nil {
		return err
	}
	if out.Format == show.Table {
		secret := "not encrypted"
		if n := len(a.Identity.Recipients); n > 0 {
			secret = fmt.Sprintf("encrypted to %d recipients", n)
		}
		fmt.Fprintf(w, "\narchive %s of cluster %s, created %s, %s\n", a.Identity.Archive,
			a.Identity.Cluster, a.Identity.Created.Format(time.RFC3339), secret)
	}
	printDamages(c.ErrOrStderr(), a.Damages())
	return nil
}

func printDamages(w io.Writer, list []archived.Damage) {
	for _, d := range list {
		fmt.Fprintf(w, "DAMAGED %s\n", d)
	}
}

const verifyHelp = `Read every object of an archive, compare it with its checksum, rebuild the states, and
compare the hash of each (HashKV) with the one that the cluster had noted.

Each state is built twice: out of its own objects, and by applying the entries after
the state before. Both must have the hash, and the same leases, users and roles. This
takes the space of the store in a temporary directory, below TMPDIR if that is set.

--sample is for every day: it rebuilds the newest state with the entries after it, and
reads a hundredth of the other objects.

Each damage is printed on a line of its own. GAP is a range of entries that no object
has: the bucket was away for longer than members keep them, or a prune has removed
them. States in a gap cannot be restored; those after it can.

Without --identity only checksums of an encrypted archive are compared, and gaps are
found by the names of its objects. With --identity the keys must fit all objects.

Exit codes: 0 nothing is damaged, 1 damage, or the newest entries cannot be restored,
2 the verification could not be completed, 128 bad arguments.`

// Verify returns the command archive verify.
func Verify() *cobra.Command {
	var s source
	var out *facts.Format
	var sample bool
	c := &cobra.Command{
		Use:     "verify URL",
		Short:   "Read an archive, rebuild its states, and compare them with the cluster's hashes",
		Long:    verifyHelp,
		Example: "  vigilctl archive verify file:///srv/archive\n  vigilctl archive verify 's3://backups?prefix=prod/' --sample --identity key.txt",
		Args:    command.ExactlyOne("archive verify"),
		RunE: func(c *cobra.Command, args []string) error {
			return s.readArchive(c, args[0],
				func(a *archived.Archive) error { return verify(c, a, sample, out) })
		},
	}
	s.addFlags(c)
	c.Flags().BoolVar(&sample, "sample", false,
		"read the newest state and a part of the other objects")
	out = facts.Add(c.Flags(), "how to print: simple or json", show.Simple, show.JSON)
	return c
}

func verify(c *cobra.Command, a *archived.Archive, sample bool, out *facts.Format) (err error) {
	dir, err := os.MkdirTemp("", "vigilctl-archive-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	p := progress.NewBytes(c.ErrOrStderr(), out.Format == show.JSON)
	v, err := a.Verify(c.Context(),
		archived.VerifyOptions{FS: vfs.OS(), Dir: dir, Sample: sample, Progress: p.Set})
	p.End()
	if err := printVerdict(c.OutOrStdout(), a, v, out); err != nil {
		return err
	}
	switch {
	case err != nil:
		return exit.With(incomplete, err)
	case len(v.Damages) > 0 || v.Index < v.Newest:
		return exit.Silent(exit.Failure)
	}
	return nil
}

func printVerdict(w io.Writer, a *archived.Archive, v *archived.Verdict, out *facts.Format) error {
	if out.Format == show.JSON {
		return printJSON(w, v)
	}
	printDamages(w, v.Damages)
	for _, g := range v.Gaps {
		fmt.Fprintf(w, "GAP entries %d to %d\n", g.From, g.To)
	}
	if v.Other > 0 {
		fmt.Fprintf(w, "%d objects are none of an archive\n", v.Other)
	}
	if v.Unlisted > 0 {
		fmt.Fprintf(w, "%d parts are in no manifest; vigilctl archive prune removes them when they are a day old\n", v.Unlisted)
	}
	verdict := "nothing is damaged"
	if n := len(v.Damages); n > 0 {
		verdict = fmt.Sprintf("%d damaged", n)
	}
	if v.Encrypted {
		_, err := fmt.Fprintf(w,
			"archive %s: %d objects, %s; up to index %d: %s; only checksums were compared, because no identity fits\n",
			a.Identity.Archive, v.Objects, amount.Bytes(v.Bytes), v.Index, verdict)
		return err
	}
	_, err := fmt.Fprintf(w,
		"archive %s: %d objects, %s; %d states rebuilt, %d of them also by entries; up to revision %d, index %d: %s\n",
		a.Identity.Archive, v.Objects, amount.Bytes(v.Bytes), v.Rebuilt, v.Replayed, v.Revision,
		v.Index, verdict)
	return err
}
