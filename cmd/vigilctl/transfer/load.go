package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/client/lease"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/progress"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
)

const loadHelp = `Put the keys of a file that "dump" wrote into a cluster, with their leases.

The file is checked from its first to its last line before anything is written; - reads
standard input, which is checked while it is loaded. Keys go in transactions, so that
nobody's writes are lost. Leases are granted again, with their ids and whole TTL,
unless they are there, and kept alive until the load ends. Keys whose lease had ended
when they were dumped are passed over.

A key that is there with the same value and lease is passed over too, so a load that
was interrupted is simply run again. One that is there with another value or lease is
a conflict, and stops the load: --if-missing leaves such keys as they are, --overwrite
replaces them. Nothing is deleted. --dry-run tells what would be done.`

const loadExample = `  vigilctl load backup.jsonl --dry-run
  vigilctl load backup.jsonl --if-missing
  vigilctl dump config/ - --endpoints old:2379 | vigilctl load - --endpoints new:2379`

// Bounds of one transaction: etcd's defaults are 128 operations and 1.5 MiB.
const (
	loadKeys  = 100
	loadBytes = 512 << 10
	// loadTries is how often one transaction is tried when others write its keys at the same time, or its outcome is
	// unknown.
	loadTries = 20
)

func Load(env *cli.Env) *cobra.Command {
	l := load{env: env}
	c := &cobra.Command{
		Use:     "load [options] <file>",
		Short:   "Put the keys of a dump into a cluster",
		Long:    loadHelp,
		Example: loadExample,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return exit.Usage("load takes one file, not %d arguments", len(args))
			case l.ifMissing && l.overwrite:
				return exit.Usage("--if-missing and --overwrite cannot be used together")
			}
			if _, err := env.Printer(show.Simple); err != nil {
				return err
			}
			l.path = args[0]
			return env.RunLong(c, l.run)
		},
	}
	c.Flags().BoolVar(&l.ifMissing, "if-missing", false, "leave keys that are there as they are")
	c.Flags().BoolVar(&l.overwrite, "overwrite", false, "replace keys that are there with another value or lease")
	c.Flags().BoolVar(&l.dry, "dry-run", false, "write nothing; tell what would be done")
	return c
}

// load puts one file.
type load struct {
	env                       *cli.Env
	path                      string
	ifMissing, overwrite, dry bool

	ended map[client.LeaseID]bool // leases whose keys are passed over
	// keeper keeps the leases of loaded keys alive until the load ends: a lease that expired meanwhile would take keys
	// with it, and refuse those that are still to come.
	keeper *lease.Keeper
	done   loaded
}

// loaded counts what became of keys.
type loaded struct{ put, same, kept, replaced, ended, leases int64 }

func (n loaded) all() int64 { return n.put + n.same + n.kept + n.replaced + n.ended }

// conflict is a key that is there and differs.
type conflict struct{ key string }

func (e *conflict) Error() string {
	return fmt.Sprintf("%s is there with another value or lease: --if-missing leaves such keys as they are, --overwrite replaces them", keytext.Quote(e.key))
}

func (l *load) run(ctx context.Context, c *client.Client) error {
	l.ended = map[client.LeaseID]bool{}
	l.keeper = lease.NewKeeper(c)
	defer l.keeper.Close()
	r := l.env.Stdin
	if l.path != "-" {
		f, err := os.Open(l.path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := l.check(ctx, f); err != nil {
			return fmt.Errorf("%s: %w", l.path, err)
		}
		r = f
	}
	d, err := newDumpReader(r)
	if err == nil {
		err = l.all(ctx, c, d)
	}
	if err != nil && (ctx.Err() != nil || l.done.all() > 0) {
		fmt.Fprintf(l.env.Stderr, "not all was loaded; until then %s. What is there is passed over when it is loaded again\n", l.told())
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(l.env.Stdout, "%s, revision %d: %s\n", l.path, d.header.Revision, l.told())
	return nil
}

// told is what was done, or would be.
func (l *load) told() string {
	n := l.done
	verb := ""
	if l.dry {
		verb = "would be "
	}
	text := fmt.Sprintf("%s %sput", screen.Count(int(n.put), "key"), verb)
	for _, x := range []struct {
		n    int64
		text string
	}{{n.replaced, verb + "replaced"}, {n.same, "there already"}, {n.kept, "left as they are"}, {n.ended, "passed over, their leases had ended"}} {
		if x.n > 0 {
			text += fmt.Sprintf(", %d %s", x.n, x.text)
		}
	}
	if n.leases > 0 {
		text += fmt.Sprintf(", %s %sgranted", screen.Count(int(n.leases), "lease"), verb)
	}
	return text
}

// check reads the file once and goes back to its beginning.
func (l *load) check(ctx context.Context, f *os.File) error {
	if st, err := f.Stat(); err != nil {
		return err
	} else if !st.Mode().IsRegular() {
		return errors.New("not a regular file; - reads standard input")
	}
	d, err := newDumpReader(f)
	if err != nil {
		return err
	}
	p := progress.NewItems(l.env.Stderr, "checking "+l.path, "keys", d.header.Keys)
	defer p.End()
	for {
		key, lease, err := d.next()
		if err != nil {
			return err
		}
		if key == nil && lease == nil {
			break
		}
		if d.keys%1000 == 0 {
			p.Set(d.keys)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// all loads all keys.
func (l *load) all(ctx context.Context, c *client.Client, d *dumpReader) error {
	p := progress.NewItems(l.env.Stderr, "loading "+l.path, "keys", d.header.Keys)
	defer p.End()
	var batch []dumpKey
	bytes := 0
	flush := func() error {
		err := l.batch(ctx, c, batch)
		batch, bytes = batch[:0], 0
		p.Set(l.done.all())
		return err
	}
	for {
		key, lease, err := d.next()
		switch {
		case err != nil:
			return err
		case lease != nil:
			err = l.lease(ctx, c, lease)
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

// lease grants a lease unless it is there, and keeps it alive.
func (l *load) lease(ctx context.Context, c *client.Client, d *dumpLease) error {
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
	for n := range loadTries {
		_, err := l.keeper.Keep(ctx, id)
		if !errors.Is(err, client.ErrLeaseNotFound) {
			return err
		}
		_, err = l.keeper.Grant(ctx, time.Duration(d.TTL)*time.Second, client.WithLeaseID(id))
		switch {
		case err == nil:
			l.done.leases++
			return nil
		case errors.Is(err, client.ErrLeaseExists):
		case !l.again(ctx, n, err):
			return err
		}
	}
	return fmt.Errorf("lease %016x is granted and revoked by others all the time: try again when it is not", int64(id))
}

// batch puts keys, all or none of them.
func (l *load) batch(ctx context.Context, c *client.Client, keys []dumpKey) error {
	if len(keys) == 0 {
		return nil
	}
	// What is there is not known yet: nothing, if it is the first load.
	missing, puts, gets := make([]client.Cmp, len(keys)), make([]client.Op, len(keys)), make([]client.Op, len(keys))
	for i, k := range keys {
		missing[i], puts[i], gets[i] = client.Missing(string(k.Key)), k.put(), client.OpGet(string(k.Key))
	}
	if l.dry {
		puts = nil
	}
	n, conditions, then := loaded{put: int64(len(keys))}, missing, puts
	for try := range loadTries {
		r, err := c.Txn(ctx).If(conditions...).Then(then...).Else(gets...).Commit()
		switch {
		case err != nil && l.again(ctx, try, err):
			continue // if it was done, the keys are found there
		case errors.Is(err, client.ErrUncertain):
			return fmt.Errorf("the outcome for %s and what follows is unknown: %w", keytext.Quote(string(keys[0].Key)), err)
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
	return fmt.Errorf("others change %s and what follows all the time: try again when they do not", keytext.Quote(string(keys[0].Key)))
}

// again reports whether the nth attempt, counted from 0, is to be repeated because its outcome is unknown, and waits
// before it: 25 ms at first and a second at most, some 15 seconds for all.
func (l *load) again(ctx context.Context, n int, err error) bool {
	if !errors.Is(err, client.ErrUncertain) || !client.Temporary(err) || n == loadTries-1 {
		return false
	}
	select {
	case <-time.After(min(time.Second, 25*time.Millisecond<<min(n, 6))):
		return true
	case <-ctx.Done():
		return false
	}
}

// decide compares keys with those that are there, and returns what is to be done if that does not change.
func (l *load) decide(keys []dumpKey, r *client.TxnResponse) (n loaded, conditions []client.Cmp, then []client.Op, err error) {
	for i, k := range keys {
		there := r.Responses[i].Get.KV()
		if there == nil {
			conditions = append(conditions, client.Missing(string(k.Key)))
			then = append(then, k.put())
			n.put++
			continue
		}
		conditions = append(conditions, client.ModRevision(string(k.Key)).Equal(there.ModRevision))
		switch {
		case bytes.Equal(there.Value, []byte(k.Value)) && there.Lease == client.LeaseID(k.Lease):
			n.same++
		case l.ifMissing:
			n.kept++
		case l.overwrite:
			then = append(then, k.put())
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

// put is the operation that puts a key.
func (k *dumpKey) put() client.Op {
	return client.OpPut(string(k.Key), []byte(k.Value), client.WithLease(client.LeaseID(k.Lease)))
}

func (n *loaded) add(m loaded) {
	n.put += m.put
	n.same += m.same
	n.kept += m.kept
	n.replaced += m.replaced
}
