// Package offline has the commands that read files without a running member: check, snapshot
// status, snapshot restore and hashkv.
package offline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/facts"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/amount"
	"vigil/internal/offline/datadir"
	"vigil/internal/vfs"
)

// checkHelp is the long help text of check.
const checkHelp = `Read every record of a data directory and compare it with its checksum.

DIR is the --data-dir of a member that is not running, a checkpoint, a copy of
either, or just the history or wal directory of one. Nothing is written,
repaired or locked.

Each damage is printed on a line of its own: the file, the offset where its first
damaged part begins, and the reason. The check also finds files that are missing,
duplicated, swapped, truncated or from another member, and a store and a raft log
that do not belong together.

"torn" is not damage: a crash left part of a write that was not acknowledged. The
number is how many bytes the next start will cut.

While a member runs, its files change, and a check would report damage that does
not exist. The command returns an error then; stop the member, or check a
checkpoint or a copy of the disk. --live checks at least the sealed segments of
the store, which hold all but the newest data and never change.

A file that could not be read, for instance without permission or for want of
file descriptors, is printed too. It is not damage, but the check is incomplete.

Exit codes: 0 no damage, 1 damage, 2 the check could not be completed.`

const checkExample = `  vigilctl check /var/lib/vigil/infra0.etcd
  vigilctl check /var/lib/vigil/infra0.etcd --wal-dir /mnt/nvme/infra0-wal
  vigilctl check -w json /backup/infra0-checkpoint | jq .damages`

// exitIncomplete is the exit code of a check that could not be completed.
const exitIncomplete = 2

// Check returns the command that checks a data directory.
func Check() *cobra.Command {
	var out *facts.Format
	var walDir string
	var live bool
	c := &cobra.Command{
		Use:     "check DIR",
		Short:   "Read every record of a data directory or a checkpoint and report damage",
		Long:    checkHelp,
		Example: checkExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usage("check takes one directory, not %d arguments; see vigilctl check --help", len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return check(c, datadir.Options{FS: vfs.OS(), Dir: filepath.Clean(args[0]),
				WALDir: walDir, Live: live}, out)
		},
	}
	c.Flags().StringVar(&walDir, "wal-dir", "", "the directory of the raft log, if not `DIR`/wal")
	c.Flags().BoolVar(&live, "live", false,
		"check only the files that never change, while the member runs")
	out = facts.Add(c.Flags(), "how to print: table, simple (a line each, comma separated) or json",
		show.Table, show.Simple, show.JSON)
	return c
}

func check(c *cobra.Command, o datadir.Options, out *facts.Format) error {
	incomplete := func(err error) error { return exit.With(exitIncomplete, err) }
	ch, err := datadir.Open(o)
	if err != nil {
		return incomplete(err)
	}
	locks := []string{filepath.Join(o.Dir, datadir.LockName)}
	// The lock for a history or wal directory is in its parent.
	if base := filepath.Base(o.Dir); base == datadir.HistoryName || base == datadir.WALName {
		locks = append(locks, filepath.Join(filepath.Dir(o.Dir), datadir.LockName))
	}
	inUse := func() (bool, error) {
		for _, name := range locks {
			if held, err := vfs.Locked(name); held || err != nil {
				return held, err
			}
		}
		return false, nil
	}
	if !o.Live {
		held, err := inUse()
		if err != nil {
			return incomplete(err)
		}
		if held {
			return incomplete(fmt.Errorf("a running member has %s open; stop it, check a checkpoint or a copy, or use --live to check the sealed segments only", o.Dir))
		}
	}
	line := newCheckLine(c.ErrOrStderr(), ch.Bytes)
	for f := range ch.Files(c.Context()) {
		line.showProgress(f.Bytes)
	}
	line.clear()
	if err := c.Context().Err(); err != nil {
		return incomplete(errors.New("interrupted; the files that were not read may be damaged"))
	}
	r := ch.Report()
	if err := printReport(c.OutOrStdout(), r, out); err != nil {
		return incomplete(err)
	}
	if !o.Live {
		if held, err := inUse(); err != nil || held {
			return incomplete(errors.New("a member started to use the directory during the check; stop it and check again"))
		}
	}
	switch {
	case len(r.Damages) > 0:
		return exit.Silent(exit.Failure)
	case len(r.Unread) > 0:
		return incomplete(fmt.Errorf("%d files could not be read; whether they are damaged is not known", len(r.Unread)))
	}
	return nil
}

// printReport prints the result of a check.
func printReport(w io.Writer, r *datadir.Report, out *facts.Format) error {
	if out.Format == show.JSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(r)
	}
	heading := []string{"FILE", "KIND", "VERSION", "SEGMENTS", "BATCHES", "RECORDS", "BYTES",
		"FROM", "TO", "STATE"}
	var rows [][]string
	for i := range r.Files {
		rows = append(rows, row(r, &r.Files[i]))
	}
	if err := out.Rows(w, heading, rows); err != nil {
		return err
	}
	for i := range r.Damages {
		fmt.Fprintf(w, "DAMAGED %s\n", r.Damages[i].String())
	}
	for i := range r.Unread {
		fmt.Fprintf(w, "UNREAD %s: %s\n", r.Unread[i].Path, r.Unread[i].Reason)
	}
	if out.Format == show.Simple {
		return nil
	}
	fmt.Fprintln(w)
	what := r.Kind
	if r.Live {
		what += ", sealed segments only"
	}
	fmt.Fprintf(w, "%s (%s)\n", r.Dir, what)
	if r.Cluster != "" && r.Cluster != "0" {
		fmt.Fprintf(w, "cluster %s, member %s\n", r.Cluster, r.Member)
	}
	if r.Kind != datadir.KindWAL && !r.Live {
		fmt.Fprintf(w, "store: revision %d, the outcome of the raft log up to term %d, index %d\n",
			r.Revision, r.Term, r.Index)
	}
	if r.LastIndex > 0 {
		fmt.Fprintf(w, "raft log: entries %d to %d, the last of term %d, committed up to %d\n",
			r.FirstIndex, r.LastIndex, r.LastTerm, r.Commit)
	}
	if r.Torn > 0 {
		fmt.Fprintf(w, "a crash tore the tail: the next start cuts %d bytes that were not acknowledged\n", r.Torn)
	}
	verdict := "nothing is damaged"
	if n := len(r.Damages); n > 0 {
		verdict = fmt.Sprintf("%d damaged", n)
	}
	if n := len(r.Unread); n > 0 {
		verdict += fmt.Sprintf(", %d not read", n)
	}
	_, err := fmt.Fprintf(w, "%d files, %s: %s\n", len(r.Files), amount.Bytes(r.Bytes), verdict)
	return err
}

// row returns the table row of a file.
func row(r *datadir.Report, f *datadir.FileReport) []string {
	path := f.Path
	if rel, err := filepath.Rel(r.Dir, path); err == nil && !strings.HasPrefix(rel, "..") {
		path = rel
	}
	state := "ok"
	switch {
	case f.Damage != nil:
		state = fmt.Sprintf("damaged at %d", f.Damage.Offset)
	case f.Unread != "":
		state = "not read"
	case f.Torn > 0:
		state = fmt.Sprintf("torn, %d bytes", f.Torn)
	}
	return []string{path, f.Kind, dash(int64(f.Version)), cmp.Or(f.Segments, "-"),
		strconv.Itoa(f.Batches), strconv.Itoa(f.Records),
		strconv.FormatInt(f.Bytes, 10), dash(f.First), dash(f.Last), state}
}

func dash(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// checkLine shows the progress of the check in one line on a terminal. Elsewhere it shows nothing.
type checkLine struct {
	w           io.Writer // nil if the output is not a terminal
	done, total int64
	files       int
}

func newCheckLine(w io.Writer, total int64) *checkLine {
	if _, _, terminal := screen.Size(w); !terminal {
		w = nil
	}
	return &checkLine{w: w, total: total}
}

func (l *checkLine) showProgress(n int64) {
	l.done += n
	l.files++
	if l.w != nil {
		fmt.Fprintf(l.w, "\r\x1b[Kchecked %d files, %s of %s", l.files, amount.Bytes(l.done),
			amount.Bytes(l.total))
	}
}

func (l *checkLine) clear() {
	if l.w != nil {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}
