// Package transfer has the commands that copy keys to files and clusters: dump, load and
// make-mirror.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/dumpfile"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/outfile"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/amount"
)

const dumpHelp = `Write the keys that begin with a prefix into a file of JSON lines, with their leases.

The file contains the store at one revision, the current one or that of --rev,
however long the dump takes. Text is written as text, other keys and values in base64.
Several prefixes may be given; none means all keys. "load" writes the file into a
cluster; jq and grep read it.

The file is named FILE.part until it is whole. To resume an interrupted dump, run the
same command again; if its revision has been compacted meanwhile, it starts again.
With - the dump is written to standard output.`

const dumpExample = `  vigilctl dump config/ services/ backup.jsonl
  vigilctl dump all.jsonl
  vigilctl dump config/ - | jq -r .key`

// Dump returns the command dump.
func Dump(env *cli.Env) *cobra.Command {
	d := dump{env: env}
	c := &cobra.Command{
		Use:     "dump [options] [prefix...] <file>",
		Short:   "Write keys with their leases into a file of JSON lines",
		Long:    dumpHelp,
		Example: dumpExample,
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkOrder(args); err != nil {
				return err
			}
			if d.rev < 0 {
				return exit.Usage("--rev %d: a revision is above 0", d.rev)
			}
			if _, err := env.Printer(show.Simple); err != nil {
				return err
			}
			d.path = args[len(args)-1]
			d.prefixes = removeNested(args[:len(args)-1])
			if err := env.ConfirmReplacing(c.Context(), d.yes, d.path,
				"nothing was written"); err != nil {
				return err
			}
			return env.RunLong(c, d.dumpKeys)
		},
	}
	c.Flags().Int64Var(&d.rev, "rev", 0, "the revision to write; 0 is the current one")
	d.yes.AddFlag(c)
	return c
}

// checkOrder checks the arguments of dump: prefixes, and the file after them. If the last argument
// may be a file or a prefix, the existing keys decide.
func checkOrder(args []string) error {
	if len(args) == 0 {
		return exit.Usage("dump needs the file to write; see vigilctl dump --help")
	}
	last := args[len(args)-1]
	st, err := os.Stat(last)
	isFile := last != "" && !strings.HasSuffix(last, "/") && (err != nil || !st.IsDir())
	i := slices.IndexFunc(args[:len(args)-1], looksLikeFile)
	switch {
	case i >= 0 && (!isFile || args[i] == "-"):
		order := slices.Concat(args[:i], args[i+1:], args[i:i+1])
		return exit.Usage("the file of dump comes after the prefixes, and %q is not one: vigilctl dump %s", last, command.QuoteArgs(order...))
	case isFile:
		return nil
	case last == "":
		return exit.Usage("dump needs the file to write after the prefixes; see vigilctl dump --help")
	}
	return exit.Usage("dump needs the file to write after the prefixes, and %q is a directory or a prefix: vigilctl dump %s FILE", last, command.QuoteArgs(args...))
}

// looksLikeFile reports whether an argument is more likely a file than a prefix of keys.
func looksLikeFile(arg string) bool {
	if st, err := os.Stat(arg); err == nil && st.Mode().IsRegular() {
		return true
	}
	return arg == "-" ||
		slices.Contains([]string{".json", ".jsonl", ".dump", ".txt"}, filepath.Ext(arg))
}

// removeNested sorts prefixes and removes prefixes that another one covers. Without a prefix it
// returns the empty one, for all keys.
func removeNested(prefixes []string) []string {
	if len(prefixes) == 0 {
		return []string{""}
	}
	list := slices.Sorted(slices.Values(prefixes))
	out := list[:1]
	for _, p := range list[1:] {
		if !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

// dump writes one file.
type dump struct {
	env      *cli.Env
	path     string
	prefixes []string
	rev      int64
	yes      cli.Yes
}

func (d *dump) dumpKeys(ctx context.Context, c *client.Client) error {
	if d.path != "-" {
		if err := outfile.Check(d.path); err != nil {
			return err
		}
	}
	header, err := d.newHeader(ctx, c)
	if err != nil {
		return err
	}
	if header.Keys == 0 && len(d.prefixes) == 1 && d.prefixes[0] != "" && d.path != "-" {
		if err := d.checkSwapped(ctx, c, header.Revision); err != nil {
			return err
		}
	}
	if d.path == "-" {
		w, err := dumpfile.NewWriter(d.env.Stdout, header)
		if err != nil {
			return err
		}
		if err := d.writeKeys(ctx, c, w, header); err != nil {
			return err
		}
		return w.End()
	}
	part := d.path + ".part"
	w, f, err := d.openPart(ctx, c, part, header)
	if err != nil {
		return err
	}
	err = d.writeKeys(ctx, c, w, header)
	if err == nil {
		err = w.End()
	} else {
		err = errors.Join(err, w.Flush()) // keep the lines to resume from
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = outfile.Publish(part, d.path) // still locked: no other dump may use the file
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, errIncomplete) {
		return errors.Join(err, os.Remove(part))
	}
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintf(d.env.Stderr, "%s has %d of %d keys; run the same command to resume\n",
				part, w.Keys(), header.Keys)
		}
		return err
	}
	if err := outfile.SyncDir(filepath.Dir(d.path)); err != nil {
		return err
	}
	fmt.Fprintf(d.env.Stdout, "%s: %s and %s of revision %d\n", d.path,
		amount.Count(int(w.Keys()), "key"), amount.Count(int(w.Leases()), "lease"), header.Revision)
	return nil
}

// checkSwapped returns an error if no key begins with the prefix, but some begin with the name of
// the file. A script gets only a warning: it may write an empty dump every day.
func (d *dump) checkSwapped(ctx context.Context, c *client.Client, rev int64) error {
	r, err := c.Get(ctx, d.path, client.WithPrefix(), client.WithCountOnly(),
		client.WithRevision(rev))
	if err != nil || r.Count == 0 {
		return nil
	}
	text := fmt.Sprintf("no key begins with %q, but %s with %q: the file comes last: vigilctl dump %s",
		d.prefixes[0], amount.Count(int(r.Count), "key"), d.path,
		command.QuoteArgs(d.path, d.prefixes[0]))
	if d.env.Asks(d.yes) {
		return exit.Usage("%s", text)
	}
	fmt.Fprintln(d.env.Stderr, "warning: "+text)
	return nil
}

// newHeader asks the cluster for the revision and the number of keys.
func (d *dump) newHeader(ctx context.Context, c *client.Client) (*dumpfile.Header, error) {
	rev, keys, cluster := d.rev, int64(0), uint64(0)
	for _, p := range d.prefixes {
		r, err := c.Get(ctx, p, client.WithPrefix(), client.WithCountOnly(),
			client.WithRevision(rev))
		if err != nil {
			return nil, cli.AtRevision(err, p, d.rev)
		}
		if rev == 0 {
			rev = r.Header.Revision
		}
		cluster = r.Header.ClusterID
		keys += r.Count
	}
	return dumpfile.NewHeader(cluster, rev, keys, d.prefixes...), nil
}

// openPart opens the file of an unfinished dump, or a new one. If an interrupted dump can be
// resumed, header becomes its header.
func (d *dump) openPart(ctx context.Context, c *client.Client, part string,
	header *dumpfile.Header) (*dumpfile.Writer, *os.File, error) {
	f, err := outfile.OpenPart(part)
	if err != nil {
		return nil, nil, err
	}
	w, err := d.resume(ctx, c, f, header)
	if err == nil && w == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err == nil {
			w, err = dumpfile.NewWriter(f, header)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return w, f, nil
}

// resume reads the file of an interrupted dump. It returns nil if the dump has to start again.
func (d *dump) resume(ctx context.Context, c *client.Client, f *os.File,
	header *dumpfile.Header) (*dumpfile.Writer, error) {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return nil, err
	}
	restart := func(reason string) (*dumpfile.Writer, error) {
		fmt.Fprintf(d.env.Stderr, "%s cannot be resumed, %s: starting again\n", f.Name(), reason)
		return nil, nil
	}
	r, err := dumpfile.NewReader(f)
	if err != nil {
		return restart(err.Error())
	}
	if !r.Header.Same(header) || d.rev != 0 && d.rev != r.Header.Revision {
		return restart("it is a dump of other data")
	}
	_, err = c.Get(ctx, d.prefixes[0], client.WithPrefix(), client.WithCountOnly(),
		client.WithRevision(r.Header.Revision))
	if errors.Is(err, client.ErrCompacted) {
		return restart(fmt.Sprintf("revision %d has been compacted", r.Header.Revision))
	}
	if err != nil {
		return nil, err
	}
	whole, w, err := r.Resume(f)
	if err != nil {
		return restart(err.Error())
	}
	*header = r.Header
	if err := f.Truncate(whole); err != nil {
		return nil, err
	}
	if _, err := f.Seek(whole, io.SeekStart); err != nil {
		return nil, err
	}
	fmt.Fprintf(d.env.Stderr, "resuming %s with %d of %d keys of revision %d\n", f.Name(), w.Keys(),
		header.Keys, header.Revision)
	return w, nil
}

// errIncomplete reports a listing with a wrong number of keys. The dump is unusable.
var errIncomplete = errors.New("the dump is not complete")

// writeKeys writes the keys that follow the last one.
func (d *dump) writeKeys(ctx context.Context, c *client.Client, w *dumpfile.Writer,
	header *dumpfile.Header) error {
	p := progress.NewItems(d.env.Stderr, "writing "+d.path, "keys", header.Keys)
	defer p.End()
	for _, prefix := range d.prefixes {
		from, end := prefix, client.PrefixEnd(prefix)
		if w.Keys() > 0 && w.Last() >= from {
			from = w.Last() + "\x00"
		}
		if end != "\x00" && from >= end {
			continue
		}
		for kv, err := range c.List(ctx, from, client.WithRange(end),
			client.WithRevision(header.Revision)).All() {
			if errors.Is(err, client.ErrCompacted) {
				return fmt.Errorf("revision %d was compacted during the dump: run it again, or compact less often (%w)", header.Revision, err)
			}
			if err != nil {
				return err
			}
			if kv.Lease != 0 && !w.HasLease(kv.Lease) {
				if err := writeLease(ctx, c, w, kv.Lease); err != nil {
					return err
				}
			}
			if err := w.Key(kv); errors.Is(err, dumpfile.ErrOrder) {
				return fmt.Errorf("%w: %w", errIncomplete, err)
			} else if err != nil {
				return err
			}
			p.Set(w.Keys())
		}
	}
	if w.Keys() != header.Keys {
		return fmt.Errorf("%w: revision %d has %d keys and %d were read; run it again",
			errIncomplete, header.Revision, header.Keys, w.Keys())
	}
	return nil
}

// writeLease writes the line of a lease.
func writeLease(ctx context.Context, c *client.Client, w *dumpfile.Writer,
	id client.LeaseID) error {
	r, err := c.TimeToLive(ctx, id, false)
	if err != nil {
		return err
	}
	l := dumpfile.Lease{ID: keytext.Lease(id)}
	if r.Granted > 0 {
		l.TTL, l.Remaining = int64(r.Granted.Seconds()), max(0, int64(r.Remaining.Seconds()))
	}
	return w.Lease(l)
}
