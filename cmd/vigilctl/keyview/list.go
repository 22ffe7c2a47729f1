package keyview

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/folders"
)

const listHelp = `List the keys and the folders directly below a prefix, like the files of a directory.

A folder stands for all keys that go on with the same part up to the next separator; the
number of its keys follows. No key in a folder is read, so a listing takes as long as it
has lines, however many keys there are. All is read at one revision.

A prefix is any beginning of a key: "ls config" lists config/ and config2 too, and "ls config/"
what is in config/.`

// List returns the command ls.
func List(env *cli.Env) *cobra.Command {
	l := listing{}
	var at cli.Time
	c := &cobra.Command{
		Use:     "ls [options] [prefix]",
		Short:   "List the keys and folders directly below a prefix",
		Long:    listHelp,
		Example: "  vigilctl ls\n  vigilctl ls services/\n  vigilctl ls services/ -w table\n  vigilctl ls services/ --at 5m",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return exit.Usage("ls takes one prefix, not %d arguments", len(args))
			case l.separator == "":
				return exit.Usage("--separator must not be empty")
			case l.limit < 0:
				return exit.Usage("--limit %d: at least 1, or 0 for all", l.limit)
			case l.rev < 0:
				return exit.Usage("--rev %d: a revision is above 0", l.rev)
			case at.Given() && l.rev != 0:
				return exit.Usage("--at and --rev cannot both be given")
			}
			prefix := ""
			if len(args) == 1 {
				prefix = args[0]
			}
			p, err := env.Printer(show.Simple, show.Table, show.JSON, show.YAML)
			if err != nil {
				return err
			}
			return env.RunLong(c, func(ctx context.Context, cl *client.Client) error {
				if at.Given() {
					if l.rev, err = at.Revision(ctx, cl); err != nil {
						return err
					}
				}
				return l.printListing(ctx, env, cl, prefix, p)
			})
		},
	}
	c.Flags().StringVar(&l.separator, "separator", "/", "the separator of the parts of a key")
	c.Flags().IntVar(&l.limit, "limit", 0, "the largest number of lines; 0 is all")
	c.Flags().Int64Var(&l.rev, "rev", 0, "read the store at this revision; 0 is the current one")
	c.Flags().Var(&at, "at", "read the store as it was at this `TIME`: "+cli.TimeFormats)
	return c
}

// listing has the options of a listing.
type listing struct {
	separator string
	limit     int
	rev       int64
}

// line is a key or a folder.
type line struct {
	Folder keytext.JSON `json:"folder,omitempty"`
	Keys   int64        `json:"keys,omitempty"` // in the folder
	Key    keytext.JSON `json:"key,omitempty"`
	keytext.Metadata
}

// listed is the JSON form of a listing.
type listed struct {
	Revision int64        `json:"revision"`
	Prefix   keytext.JSON `json:"prefix"`
	Keys     int64        `json:"keys"` // with the prefix
	Entries  []line       `json:"entries"`
	More     bool         `json:"more,omitempty"`
}

func (l *listing) printListing(ctx context.Context, env *cli.Env, c *client.Client, prefix string,
	p *show.Printer) error {
	all, err := c.Get(ctx, prefix, client.WithPrefix(), client.WithCountOnly(),
		client.WithRevision(l.rev))
	if err != nil {
		return cli.AtRevision(err, prefix, l.rev)
	}
	out := listed{Revision: l.rev, Prefix: keytext.JSON(prefix), Keys: all.Count, Entries: []line{}}
	if l.rev == 0 {
		out.Revision = all.Header.Revision
	}
	lines := 0
	for x, err := range l.entries(ctx, c, prefix, out.Revision) {
		if errors.Is(err, client.ErrCompacted) {
			return fmt.Errorf("revision %d was compacted during the listing: run it again (%w)",
				out.Revision, err)
		}
		if err != nil {
			return err
		}
		if out.More = l.limit > 0 && lines == l.limit; out.More {
			break
		}
		lines++
		switch {
		case p.Format != show.Simple:
			out.Entries = append(out.Entries, x)
		case x.Folder != "":
			err = p.Line("%s  %d", keytext.Quote(string(x.Folder)), x.Keys)
		default:
			err = p.Line("%s", keytext.Quote(string(x.Key)))
		}
		if err != nil {
			return err
		}
	}
	switch {
	case p.Format != show.Simple:
		return p.Print(show.Answer{Value: &out,
			Table: func() ([]string, [][]string) { return tableOf(out.Entries) }})
	case out.More:
		env.Note("there are more lines than --limit %d", l.limit)
	case lines == 0:
		env.Note("no key begins with %s", keytext.Quote(prefix))
	}
	return nil
}

// entries iterates over the lines of a listing.
func (l *listing) entries(ctx context.Context, c *client.Client, prefix string,
	rev int64) iter.Seq2[line, error] {
	read := func(key, end []byte, limit int64) ([]client.KeyValue, bool, error) {
		r, err := c.Get(ctx, string(key), client.WithRange(string(end)), client.WithRevision(rev),
			client.WithKeysOnly(), client.WithLimit(limit))
		if err != nil {
			return nil, false, err
		}
		return r.KVs, r.More, nil
	}
	keyOf := func(kv client.KeyValue) []byte { return []byte(kv.Key) }
	return func(yield func(line, error) bool) {
		for e, err := range folders.Walk([]byte(prefix), nil, []byte(l.separator), keyOf, read) {
			x := line{}
			switch {
			case err != nil:
			case e.Folder != nil:
				var n *client.GetResponse
				if n, err = c.Get(ctx, string(e.Folder), client.WithPrefix(),
					client.WithCountOnly(), client.WithRevision(rev)); err == nil {
					x.Folder, x.Keys = keytext.JSON(e.Folder), n.Count
				}
			default:
				x = line{Key: keytext.JSON(e.Item.Key), Metadata: keytext.MetadataOf(e.Item)}
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// tableOf returns the heading and rows of a table.
func tableOf(list []line) (heading []string, rows [][]string) {
	for _, x := range list {
		if x.Folder != "" {
			rows = append(rows, []string{keytext.Quote(string(x.Folder)),
				strconv.FormatInt(x.Keys, 10), "", "", ""})
			continue
		}
		lease := ""
		if x.Lease != 0 {
			lease = fmt.Sprintf("%016x", int64(x.Lease))
		}
		rows = append(rows, []string{keytext.Quote(string(x.Key)), "",
			strconv.FormatInt(x.ModRevision, 10), strconv.FormatInt(x.Version, 10), lease})
	}
	return []string{"key", "keys", "mod revision", "version", "lease"}, rows
}
