package archivecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/dumpfile"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/facts"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/outfile"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/amount"
	"vigil/internal/offline/archived"
	"vigil/internal/vfs"
)

// keys has the flags of a restore of keys, either into a running cluster or into a file.
type keys struct {
	prefix                          string
	dump                            string
	dryRun, yes, delete, skipLeased bool
	list                            int

	env *cli.Env
	out *facts.Format
}

// keysFlags are the flags that need --prefix.
var keysFlags = []string{"dump", "dry-run", "yes", "delete-new", "skip-leased", "list"}

func (k *keys) addFlags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&k.prefix, "prefix", "",
		"restore only the keys that begin with this `PREFIX`, into the running cluster or with --dump into a file")
	flags.StringVar(&k.dump, "dump", "",
		"with --prefix: write a `FILE` as vigilctl dump does, - for standard output")
	flags.BoolVar(&k.dryRun, "dry-run", false,
		"with --prefix: only print what would change in the cluster")
	flags.BoolVar(&k.yes, "yes", false, "with --prefix: change the cluster without a question")
	flags.BoolVar(&k.delete, "delete-new", false,
		"with --prefix: delete the keys that exist now and did not exist then")
	flags.BoolVar(&k.skipLeased, "skip-leased", false,
		"with --prefix: leave out keys whose lease has ended")
	flags.IntVar(&k.list, "list", 20, "with --prefix: print at most `N` of the changes")
}

// checkFlags checks the flags. given reports whether a flag was given.
func (k *keys) checkFlags(given func(string) bool) error {
	if !given("prefix") {
		for _, name := range keysFlags {
			if given(name) {
				return exit.Usage("--%s needs --prefix", name)
			}
		}
		return nil
	}
	for _, name := range []string{"data-dir", "wal-dir", "name", "initial-cluster",
		"initial-cluster-token", "initial-advertise-peer-urls", "bump-revision"} {
		if given(name) {
			return exit.Usage("--%s builds a data directory and --prefix restores keys: give one of them", name)
		}
	}
	if k.dump != "" {
		for _, name := range keysFlags[1:] {
			if given(name) {
				return exit.Usage("--%s is about a running cluster and --dump writes a file: give one of them", name)
			}
		}
	}
	switch {
	case given("dump") && k.dump == "":
		return exit.Usage("--dump needs the name of a file, or - for standard output")
	case k.dryRun && k.yes:
		return exit.Usage("--dry-run and --yes cannot be used together")
	case k.list < 0:
		return exit.Usage("--list %d is negative", k.list)
	case k.out.Format != show.Simple && k.out.Format != show.JSON:
		return exit.Usage("--prefix prints simple or json, not %s", k.out.Format)
	}
	return nil
}

// restoreKeys restores the keys of a target.
func (k *keys) restoreKeys(c *cobra.Command, a *archived.Archive, t *target) error {
	if k.dump == "" {
		return k.env.RunLong(c, func(ctx context.Context, cl *client.Client) error {
			// Ask before reading the archive: a missing permission shows at once.
			if _, err := cl.Count(ctx, k.prefix, client.WithPrefix()); err != nil {
				return err
			}
			return k.past(c, a, t, func(p *archived.Past, dir string) error {
				m := merge{keys: k, past: p, c: cl, archive: a.Identity.Cluster.String(), dir: dir}
				return m.mergeKeys(ctx)
			})
		})
	}
	if k.dump != "-" {
		if err := outfile.Check(k.dump); err != nil {
			return err
		}
	}
	return k.past(c, a, t,
		func(p *archived.Past,
			_ string) error {
			return k.writeDump(c.Context(), uint64(a.Identity.Cluster), p)
		})
}

// past calls use with the state of a target, which contains keys with the prefix, and with a
// directory for its files.
func (k *keys) past(c *cobra.Command, a *archived.Archive, t *target,
	use func(p *archived.Past, dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "vigilctl-archive-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bar := progress.NewBytes(c.ErrOrStderr(), k.out.Format == show.JSON)
	p, err := a.OpenPast(c.Context(), t.Target, vfs.OS(), dir, bar.Set)
	bar.End()
	printDamages(c.ErrOrStderr(), p.Damages)
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; nothing was restored")
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for _, m := range p.Missing {
		fmt.Fprintf(c.ErrOrStderr(), "MISSING %s\n", m)
	}
	n, err := p.Count(c.Context(), k.prefix, client.PrefixEnd(k.prefix))
	if err != nil {
		return err
	}
	if n == 0 && !k.delete {
		return fmt.Errorf("no key begins with %s at revision %d of the archive: nothing is restored", keytext.Quote(k.prefix), p.Revision)
	}
	if err := use(p, dir); err != nil {
		return err
	}
	if len(p.Missing) > 0 {
		return exit.With(incomplete,
			fmt.Errorf("the state of revision %d is not the newest of the archive: see MISSING above", p.Revision))
	}
	return nil
}

// writeDump writes the keys into a file.
func (k *keys) writeDump(ctx context.Context, cluster uint64, p *archived.Past) error {
	end := client.PrefixEnd(k.prefix)
	n, err := p.Count(ctx, k.prefix, end)
	if err != nil {
		return err
	}
	var d *dumpfile.Writer
	write := func(w io.Writer) error {
		if d, err = dumpfile.NewWriter(w,
			dumpfile.NewHeader(cluster, p.Revision, n, k.prefix)); err != nil {
			return err
		}
		for key, err := range p.Keys(ctx, k.prefix, end) {
			if err != nil {
				return err
			}
			if id := client.LeaseID(key.Lease); id != 0 && !d.HasLease(id) {
				l, _ := p.Lease(key.Lease)
				if err := d.Lease(dumpfile.Lease{ID: keytext.Lease(id), TTL: l.TTL,
					Remaining: l.Left}); err != nil {
					return err
				}
			}
			kv := client.KeyValue{Key: string(key.Key), Value: key.Value,
				CreateRevision: key.Create, ModRevision: key.Mod, Version: key.Version,
				Lease: client.LeaseID(key.Lease)}
			if err := d.Key(kv); err != nil {
				return err
			}
		}
		return d.End()
	}
	if k.dump == "-" {
		return write(k.env.Stdout)
	}
	if err := outfile.Create(k.dump, write); err != nil {
		return err
	}
	if k.out.Format == show.JSON {
		return printLine(k.env.Stdout, struct {
			Dump     string `json:"dump"`
			Keys     int64  `json:"keys"`
			Leases   int64  `json:"leases"`
			Revision int64  `json:"revision"`
		}{k.dump, d.Keys(), d.Leases(), p.Revision})
	}
	_, err = fmt.Fprintf(k.env.Stdout, "%s: %s and %s of revision %d\n", k.dump,
		amount.Count(int(d.Keys()), "key"), amount.Count(int(d.Leases()), "lease"), p.Revision)
	return err
}
