package transfer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/client/lease"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/dumpfile"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/amount"
)

const loadHelp = `Put the keys of a file that "dump" wrote into a cluster, with their leases.

The whole file is checked before any key is written; - reads standard input, which is
checked while it is loaded. Keys are put in transactions, so that no concurrent write is
lost. Leases that do not exist are granted with their IDs and whole TTL, and all are
kept alive until the load ends. Keys whose lease had ended when they were dumped are
skipped.

A key that exists with the same value and lease is skipped too, so an interrupted load
can be run again. A key that exists with another value or lease is a conflict, and stops
the load: --if-missing leaves such keys unchanged, --overwrite replaces them. No key is
deleted. --dry-run prints what would be done.`

const loadExample = `  vigilctl load backup.jsonl --dry-run
  vigilctl load backup.jsonl --if-missing
  vigilctl dump config/ - --endpoints old:2379 | vigilctl load - --endpoints new:2379`

// Limits of one transaction: etcd's defaults are 128 operations and 1.5 MiB.
const (
	loadKeys  = 100
	loadBytes = 512 << 10
)

// Load returns the command load.
func Load(env *cli.Env) *cobra.Command {
	l := load{env: env}
	c := &cobra.Command{
		Use:     "load [options] <file>",
		Short:   "Put the keys of a dump into a cluster",
		Long:    loadHelp,
		Example: loadExample,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return exit.Usage("load takes one file, not 0 arguments: the name of a file that dump has written, or - for standard input")
			case len(args) > 1:
				return exit.Usage("load takes one file, not %d arguments: it puts all keys of the file; dump PREFIX FILE chooses keys", len(args))
			case l.ifMissing && l.overwrite:
				return exit.Usage("--if-missing and --overwrite cannot be used together")
			}
			if _, err := env.Printer(show.Simple); err != nil {
				return err
			}
			l.path = args[0]
			return env.RunLong(c, l.loadFile)
		},
	}
	c.Flags().BoolVar(&l.ifMissing, "if-missing", false, "leave existing keys unchanged")
	c.Flags().BoolVar(&l.overwrite, "overwrite", false,
		"replace existing keys with another value or lease")
	c.Flags().BoolVar(&l.dry, "dry-run", false, "write nothing; print what would be done")
	return c
}

// load loads one file.
type load struct {
	env                       *cli.Env
	path                      string
	ifMissing, overwrite, dry bool

	ended map[client.LeaseID]bool // leases whose keys are skipped
	// keeper keeps the leases of loaded keys alive until the load ends. If a lease expired during
	// the load, its keys would be deleted and puts of later keys rejected.
	keeper *lease.Keeper
	done   loadCounts
}

// loadCounts counts the granted leases, and the keys by outcome.
type loadCounts struct{ put, same, kept, replaced, ended, leases int64 }

func (n loadCounts) keys() int64 { return n.put + n.same + n.kept + n.replaced + n.ended }

// conflict reports that a key exists with another value or lease.
type conflict struct{ key string }

func (e *conflict) Error() string {
	return fmt.Sprintf("%s exists with another value or lease: --if-missing leaves such keys unchanged, --overwrite replaces them", keytext.Quote(e.key))
}

func (l *load) loadFile(ctx context.Context, c *client.Client) error {
	l.ended = map[client.LeaseID]bool{}
	l.keeper = lease.NewKeeper(c)
	defer l.keeper.Close()
	r := l.env.Input(ctx)
	if l.path != "-" {
		f, err := os.Open(l.path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := l.checkFile(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", l.path, err)
		}
		r = f
	}
	d, err := dumpfile.NewReader(r)
	if err == nil {
		err = l.loadAll(ctx, c, d)
	}
	if err != nil && (ctx.Err() != nil || l.done.keys() > 0) {
		fmt.Fprintf(l.env.Stderr,
			"the load is incomplete: %s. A new load skips the keys that exist\n", l.summary())
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(l.env.Stdout, "%s, revision %d: %s\n", l.path, d.Header.Revision, l.summary())
	return nil
}

// summary returns the numbers of keys and leases.
func (l *load) summary() string {
	n := l.done
	verb := ""
	if l.dry {
		verb = "would be "
	}
	text := fmt.Sprintf("%s %sput", amount.Count(int(n.put), "key"), verb)
	for _, x := range []struct {
		n    int64
		text string
	}{{n.replaced, verb + "replaced"}, {n.same, "there already"}, {n.kept, "left unchanged"},
		{n.ended, "skipped, their leases had ended"}} {
		if x.n > 0 {
			text += fmt.Sprintf(", %d %s", x.n, x.text)
		}
	}
	if n.leases > 0 {
		text += fmt.Sprintf(", %s %sgranted", amount.Count(int(n.leases), "lease"), verb)
	}
	return text
}

// checkFile reads the file once, and seeks to its start.
func (l *load) checkFile(ctx context.Context, f *os.File) error {
	if st, err := f.Stat(); err != nil {
		return err
	} else if !st.Mode().IsRegular() {
		return errors.New("not a regular file; - reads standard input")
	}
	d, err := dumpfile.NewReader(f)
	if err != nil {
		return err
	}
	p := progress.NewItems(l.env.Stderr, "checking "+l.path, "keys", d.Header.Keys)
	defer p.End()
	for {
		key, lease, err := d.Next()
		if err != nil {
			return err
		}
		if key == nil && lease == nil {
			break
		}
		if d.Keys()%1000 == 0 {
			p.Set(d.Keys())
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// loadAll puts all keys.
func (l *load) loadAll(ctx context.Context, c *client.Client, d *dumpfile.Reader) error {
	p := progress.NewItems(l.env.Stderr, "loading "+l.path, "keys", d.Header.Keys)
	defer p.End()
	var batch []dumpfile.Key
	bytes := 0
	flush := func() error {
		err := l.putBatch(ctx, c, batch)
		batch, bytes = batch[:0], 0
		p.Set(l.done.keys())
		return err
	}
	for {
		key, lease, err := d.Next()
		switch {
		case err != nil:
			return err
		case lease != nil:
			err = l.grantLease(ctx, c, lease)
		case key == nil:
			return flush()
		case l.ended[client.LeaseID(key.Lease)]:
			l.done.ended++
		default:
			size := len(key.Key) + len(key.Value)
			if len(batch) > 0 && (len(batch) == loadKeys || bytes+size > loadBytes) {
				err = flush()
			}
			batch, bytes = append(batch, *key), bytes+size
		}
		if err != nil {
			return err
		}
	}
}

// grantLease grants a lease unless it exists, and keeps it alive.
func (l *load) grantLease(ctx context.Context, c *client.Client, d *dumpfile.Lease) error {
	id := client.LeaseID(d.ID)
	if d.TTL == 0 {
		l.ended[id] = true
		return nil
	}
	if l.dry {
		r, err := c.TimeToLive(ctx, id, false)
		if err == nil && r.Granted == 0 {
			l.done.leases++
		}
		return err
	}
	for n := range cli.Attempts {
		_, err := l.keeper.Keep(ctx, id)
		if !errors.Is(err, client.ErrLeaseNotFound) {
			return err
		}
		_, err = l.keeper.Grant(ctx, command.Seconds(d.TTL), client.WithLeaseID(id))
		switch {
		case err == nil:
			l.done.leases++
			return nil
		case errors.Is(err, client.ErrLeaseExists):
		case !cli.WaitToRetry(ctx, n, err):
			return err
		}
	}
	return fmt.Errorf("lease %016x is granted and revoked concurrently again and again: try later",
		int64(id))
}

// putBatch puts keys in one transaction.
func (l *load) putBatch(ctx context.Context, c *client.Client, keys []dumpfile.Key) error {
	if len(keys) == 0 {
		return nil
	}
	// The first attempt assumes that no key exists.
	missing, puts, gets := make([]client.Cmp, len(keys)), make([]client.Op, len(keys)),
		make([]client.Op, len(keys))
	for i, k := range keys {
		missing[i], puts[i], gets[i] = client.Missing(string(k.Key)), putOf(&k),
			client.OpGet(string(k.Key))
	}
	if l.dry {
		puts = nil
	}
	n, conditions, then := loadCounts{put: int64(len(keys))}, missing, puts
	var unknown error // the error of an attempt with an unknown outcome
	for try := range cli.Attempts {
		r, err := c.Txn(ctx).If(conditions...).Then(then...).Else(gets...).Commit()
		switch {
		case err != nil && cli.WaitToRetry(ctx, try, err):
			unknown = err
			continue // the next attempt finds the keys if this one was applied
		case err != nil && (unknown != nil || errors.Is(err, client.ErrUncertain)):
			return fmt.Errorf("the outcome for %s and the keys after it is unknown: %w",
				keytext.Quote(string(keys[0].Key)), cmp.Or(unknown, err))
		case err != nil:
			return err
		case r.Succeeded:
			l.done.add(n)
			return nil
		}
		if n, conditions, then, err = l.decide(keys, r); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s and the keys after it are written concurrently again and again: try later", keytext.Quote(string(keys[0].Key)))
}

// decide compares keys with existing ones. It returns the operations, and the conditions that no
// key has changed.
func (l *load) decide(keys []dumpfile.Key, r *client.TxnResponse) (n loadCounts,
	conditions []client.Cmp, then []client.Op, err error) {
	found, err := cli.Gets(r, len(keys))
	if err != nil {
		return n, nil, nil, err
	}
	for i, k := range keys {
		existing := found[i]
		if existing == nil {
			conditions = append(conditions, client.Missing(string(k.Key)))
			then = append(then, putOf(&k))
			n.put++
			continue
		}
		conditions = append(conditions,
			client.ModRevision(string(k.Key)).Equal(existing.ModRevision))
		switch {
		case bytes.Equal(existing.Value, []byte(k.Value)) &&
			existing.Lease == client.LeaseID(k.Lease):
			n.same++
		case l.ifMissing:
			n.kept++
		case l.overwrite:
			then = append(then, putOf(&k))
			n.replaced++
		default:
			return n, nil, nil, &conflict{string(k.Key)}
		}
	}
	if l.dry {
		then = nil
	}
	return n, conditions, then, nil
}

// putOf returns the operation that puts a key.
func putOf(k *dumpfile.Key) client.Op {
	return client.OpPut(string(k.Key), []byte(k.Value), client.WithLease(client.LeaseID(k.Lease)))
}

func (n *loadCounts) add(m loadCounts) {
	n.put += m.put
	n.same += m.same
	n.kept += m.kept
	n.replaced += m.replaced
}
