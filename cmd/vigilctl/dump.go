package main

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
	"vigil/cmd/vigilctl/show"
)

const dumpHelp = `Write the keys that begin with a prefix into a file of JSON lines, with their leases.

All of it is the store at one revision, the current one unless --rev says otherwise,
however long it takes. Text is written as text, other keys and values in base64.
Several prefixes may be given; none means all keys. "load" writes the file into a
cluster again; jq and grep read it.

Until it is whole the file is called FILE.part. A dump that was interrupted goes on
where it stopped when the same command is run again, unless its revision has been
compacted meanwhile: then it begins anew. With - the dump goes to standard output.`

const dumpExample = `  vigilctl dump config/ services/ backup.jsonl
  vigilctl dump all.jsonl
  vigilctl dump config/ - | jq -r .key`

func (a *app) dumpCommand() *cobra.Command {
	d := dump{app: a}
	c := &cobra.Command{
		Use:     "dump [options] [prefix...] <file>",
		Short:   "Write keys with their leases into a file of JSON lines",
		Long:    dumpHelp,
		Example: dumpExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return badArgs("dump needs the file to write; see vigilctl dump --help")
			}
			if d.rev < 0 {
				return badArgs("--rev %d: a revision is above 0", d.rev)
			}
			if _, err := a.formats(show.Simple); err != nil {
				return err
			}
			d.path = args[len(args)-1]
			d.prefixes = apart(args[:len(args)-1])
			return a.long(c, d.run)
		},
	}
	c.Flags().Int64Var(&d.rev, "rev", 0, "the revision to write; 0 is the current one")
	return c
}

// apart sorts prefixes and leaves out those that others hold. None means all keys.
func apart(prefixes []string) []string {
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
	app      *app
	path     string
	prefixes []string
	rev      int64
}

func (d *dump) run(ctx context.Context, c *client.Client) error {
	if d.path != "-" {
		if err := checkTarget(d.path); err != nil {
			return err
		}
	}
	header, err := d.header(ctx, c)
	if err != nil {
		return err
	}
	if d.path == "-" {
		w := newDumpWriter(d.app.out)
		if err := w.line(header); err != nil {
			return err
		}
		if err := d.write(ctx, c, w, header); err != nil {
			return err
		}
		return w.end()
	}
	part := d.path + ".part"
	w, f, err := d.open(ctx, c, part, header)
	if err != nil {
		return err
	}
	err = d.write(ctx, c, w, header)
	if err == nil {
		err = w.end()
	} else {
		err = errors.Join(err, w.w.Flush()) // to go on from
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = publish(part, d.path) // still locked: no other dump may take the file over
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, errIncomplete) {
		return errors.Join(err, os.Remove(part))
	}
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintf(d.app.errOut, "%s has %d of %d keys; run the same command to go on\n", part, w.keys, header.Keys)
		}
		return err
	}
	if err := syncDir(filepath.Dir(d.path)); err != nil {
		return err
	}
	fmt.Fprintf(d.app.out, "%s: %s and %s of revision %d\n", d.path, several(int(w.keys), "key"), several(int(w.leases), "lease"), header.Revision)
	return nil
}

// header asks for the revision and the number of keys.
func (d *dump) header(ctx context.Context, c *client.Client) (*dumpHeader, error) {
	h := &dumpHeader{Version: dumpVersion, Revision: d.rev}
	for _, p := range d.prefixes {
		r, err := c.Get(ctx, p, client.WithPrefix(), client.WithCountOnly(), client.WithRevision(h.Revision))
		if err != nil {
			return nil, err
		}
		if h.Revision == 0 {
			h.Revision = r.Header.Revision
		}
		h.ClusterID = fmt.Sprintf("%x", r.Header.ClusterID)
		h.Keys += r.Count
		h.Prefixes = append(h.Prefixes, jsonKey(p))
	}
	return h, nil
}

// open opens the file, and takes over what an interrupted dump has left in it if that can be gone on with; header
// then becomes that one's.
func (d *dump) open(ctx context.Context, c *client.Client, part string, header *dumpHeader) (*dumpWriter, *os.File, error) {
	f, err := openPart(part)
	if err != nil {
		return nil, nil, err
	}
	w, err := d.resume(ctx, c, f, header)
	if err == nil && w == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		w = newDumpWriter(f)
		if err == nil {
			err = w.line(header)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return w, f, nil
}

// resume reads what is there. It returns nil to begin anew.
func (d *dump) resume(ctx context.Context, c *client.Client, f *os.File, header *dumpHeader) (*dumpWriter, error) {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return nil, err
	}
	anew := func(reason string) (*dumpWriter, error) {
		fmt.Fprintf(d.app.errOut, "%s cannot be gone on with, %s: beginning anew\n", f.Name(), reason)
		return nil, nil
	}
	r, err := newDumpReader(f)
	if err != nil {
		return anew(err.Error())
	}
	if !r.header.same(header) || d.rev != 0 && d.rev != r.header.Revision {
		return anew("it is a dump of something else")
	}
	_, err = c.Get(ctx, d.prefixes[0], client.WithPrefix(), client.WithCountOnly(), client.WithRevision(r.header.Revision))
	if errors.Is(err, client.ErrCompacted) {
		return anew(fmt.Sprintf("revision %d has been compacted", r.header.Revision))
	}
	if err != nil {
		return nil, err
	}
	w := newDumpWriter(f)
	whole := r.read
	for {
		key, lease, err := r.next()
		if err != nil && !errors.Is(err, errNoEnd) {
			return anew(err.Error())
		}
		if key == nil && lease == nil {
			break // if it is whole but for its name, the last line is written again
		}
		whole = r.read
		if lease != nil {
			w.known[client.LeaseID(lease.ID)] = true
		}
	}
	w.sum, w.keys, w.leases, w.last = r.sum, r.keys, r.leases, r.last
	*header = r.header
	if err := f.Truncate(whole); err != nil {
		return nil, err
	}
	if _, err := f.Seek(whole, io.SeekStart); err != nil {
		return nil, err
	}
	fmt.Fprintf(d.app.errOut, "going on with %s: %d of %d keys of revision %d are there\n", f.Name(), w.keys, header.Keys, header.Revision)
	return w, nil
}

// errIncomplete reports a listing that lacks keys, or has too many: nothing of it can be used.
var errIncomplete = errors.New("the dump is not complete")

// write writes the keys after the last one.
func (d *dump) write(ctx context.Context, c *client.Client, w *dumpWriter, header *dumpHeader) error {
	p := newCount(d.app.errOut, "writing "+d.path, "keys", header.Keys)
	defer p.end()
	for _, prefix := range d.prefixes {
		from, end := prefix, client.PrefixEnd(prefix)
		if w.keys > 0 && w.last >= from {
			from = w.last + "\x00"
		}
		if end != "\x00" && from >= end {
			continue
		}
		for kv, err := range c.List(ctx, from, client.WithRange(end), client.WithRevision(header.Revision)).All() {
			if errors.Is(err, client.ErrCompacted) {
				return fmt.Errorf("revision %d was compacted while it was read: run it again, or compact less often meanwhile (%w)", header.Revision, err)
			}
			if err != nil {
				return err
			}
			if kv.Lease != 0 && !w.known[kv.Lease] {
				if err := writeLease(ctx, c, w, kv.Lease); err != nil {
					return err
				}
			}
			if err := w.key(kv); err != nil {
				return err
			}
			p.set(w.keys)
		}
	}
	if w.keys != header.Keys {
		return fmt.Errorf("%w: revision %d has %d keys and %d were read; run it again", errIncomplete, header.Revision, header.Keys, w.keys)
	}
	return nil
}

// writeLease writes what is known of a lease.
func writeLease(ctx context.Context, c *client.Client, w *dumpWriter, id client.LeaseID) error {
	r, err := c.TimeToLive(ctx, id, false)
	if err != nil {
		return err
	}
	l := dumpLease{ID: jsonLease(id)}
	if r.Granted > 0 {
		l.TTL, l.Remaining = int64(r.Granted.Seconds()), max(0, int64(r.Remaining.Seconds()))
	}
	return w.lease(l)
}
