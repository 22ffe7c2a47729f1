package keyview

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/show"
)

const diffHelp = `Compare the keys with a prefix at two revisions of the store.

Each key that differs has a line: "+" for an added key, "-" for a deleted one,
"~" for a changed one, with its revisions; with --values also the difference.
Both revisions are read page by page, so a range of any size can be compared.`

// Diff returns the command diff.
func Diff(env *cli.Env) *cobra.Command {
	var from, to int64
	var since, until cli.Time
	var values bool
	c := &cobra.Command{
		Use:     "diff [options] <prefix>",
		Short:   "Print the differences between two revisions",
		Long:    diffHelp,
		Example: "  vigilctl diff services/ --from 4200\n  vigilctl diff \"\" --from 4200 --to 4300 --values\n  vigilctl diff services/ --since 10:42 --until 11:00",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return exit.Usage("diff takes one prefix, not %d arguments; \"\" means all keys",
					len(args))
			case since.Given() && from != 0, until.Given() && to != 0:
				return exit.Usage("--since and --from, or --until and --to, cannot both be given")
			case from <= 0 && !since.Given():
				return exit.Usage("--from REVISION is needed: the older revision; or --since TIME")
			case to != 0 && to < from:
				return exit.Usage("--from %d is later than --to %d", from, to)
			}
			p, err := env.Printer(show.Simple, show.JSON)
			if err != nil {
				return err
			}
			return env.RunLong(c, func(ctx context.Context, cl *client.Client) error {
				for t, rev := range map[*cli.Time]*int64{&since: &from, &until: &to} {
					if !t.Given() {
						continue
					}
					if *rev, err = t.Revision(ctx, cl); err != nil {
						return err
					}
				}
				if to != 0 && to < from {
					return exit.Usage("revision %d of --since is later than revision %d of --until",
						from, to)
				}
				return compare(ctx, cl, args[0], from, to, func(old, new *client.KeyValue) error {
					return printDifference(p, old, new, values)
				})
			})
		},
	}
	c.Flags().Int64Var(&from, "from", 0, "the older revision")
	c.Flags().Int64Var(&to, "to", 0, "the newer revision; 0 is the current one")
	c.Flags().Var(&since, "since", "the older `TIME`, instead of --from: "+cli.TimeFormats)
	c.Flags().Var(&until, "until", "the newer `TIME`, instead of --to")
	c.Flags().BoolVar(&values, "values", false, "print how values changed")
	return c
}

// compare calls found for every key of a prefix that differs between two revisions. nil means that
// the key is missing.
func compare(ctx context.Context, c *client.Client, prefix string, from, to int64,
	found func(old, new *client.KeyValue) error) error {
	if to == 0 {
		r, err := c.Get(ctx, prefix, client.WithPrefix(), client.WithCountOnly())
		if err != nil {
			return err
		}
		to = r.Header.Revision
	}
	list := func(rev int64) (func() (client.KeyValue, error, bool), func()) {
		return iter.Pull2(c.List(ctx, prefix, client.WithPrefix(), client.WithRevision(rev)).All())
	}
	nextOld, stopOld := list(from)
	defer stopOld()
	nextNew, stopNew := list(to)
	defer stopNew()
	old, err, moreOld := nextOld()
	if err != nil {
		return cli.AtRevision(err, prefix, from)
	}
	new, err, moreNew := nextNew()
	if err != nil {
		return cli.AtRevision(err, prefix, to)
	}
	for err == nil && (moreOld || moreNew) {
		switch {
		case !moreNew || moreOld && old.Key < new.Key:
			if err = found(&old, nil); err == nil {
				old, err, moreOld = nextOld()
			}
		case !moreOld || new.Key < old.Key:
			if err = found(nil, &new); err == nil {
				new, err, moreNew = nextNew()
			}
		default:
			if old.ModRevision != new.ModRevision {
				err = found(&old, &new)
			}
			if err == nil {
				old, err, moreOld = nextOld()
			}
			if err == nil {
				new, err, moreNew = nextNew()
			}
		}
	}
	return err
}

func printDifference(p *show.Printer, old, new *client.KeyValue, values bool) error {
	if p.Format == show.JSON {
		type side struct {
			keytext.Metadata
			Value keytext.JSON `json:"value"`
		}
		line := struct {
			Key keytext.JSON `json:"key"`
			Old *side        `json:"old,omitempty"`
			New *side        `json:"new,omitempty"`
		}{}
		if old != nil {
			line.Key, line.Old = keytext.JSON(old.Key),
				&side{keytext.MetadataOf(*old), keytext.JSON(old.Value)}
		}
		if new != nil {
			line.Key, line.New = keytext.JSON(new.Key),
				&side{keytext.MetadataOf(*new), keytext.JSON(new.Value)}
		}
		b, err := json.Marshal(line)
		if err != nil {
			return err
		}
		return p.Line("%s", b)
	}
	var err error
	var how string
	switch {
	case old == nil:
		err = p.Line("+ %s  revision %d", keytext.Quote(new.Key), new.ModRevision)
		how = indent("  +", keytext.Printable(new.Value))
	case new == nil:
		err = p.Line("- %s  was of revision %d", keytext.Quote(old.Key), old.ModRevision)
		how = indent("  -", keytext.Printable(old.Value))
	default:
		err = p.Line("~ %s  revision %d, was %d", keytext.Quote(new.Key), new.ModRevision,
			old.ModRevision)
		how = indent(" ", difference(old.Value, new.Value))
	}
	if err == nil && values {
		err = p.Line("%s", how)
	}
	return err
}
