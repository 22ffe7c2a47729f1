package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
)

const mirrorHelp = `Copy keys to another cluster, and then every change of them, until the command is interrupted. The
changes of one transaction are written by one transaction, if it has at most --max-txn-ops operations
and 512 KiB. With --rev only changes are copied, from that revision on.

The number of written keys is printed every 30 seconds. Leases, users and roles are not copied.`

const mirrorExample = `  vigilctl make-mirror 10.0.1.1:2379
  vigilctl make-mirror https://far.example.com:2379 --prefix services/ --dest-prefix copy/services/ \
    --dest-cacert far-ca.pem --dest-user mirror:secret`

// mirrorInterval is the time between two prints of the number of written keys.
const mirrorInterval = 30 * time.Second

// mirror copies keys from one cluster to another.
type mirror struct {
	from, to           *client.Client
	prefix, destPrefix string
	noDestPrefix       bool
	rev                int64
	maxOps             uint
	written            atomic.Int64
	// seen is a revision of the destination. It includes all writes of the mirror whose outcome is
	// known.
	seen int64
	// blind is set if the user may not read the keys of the destination.
	blind bool
}

// batch has the writes of one transaction.
type batch struct {
	keys  []string
	ops   []client.Op
	bytes int // of keys, in conditions and writes, and of values
}

// mirrorBytes limits a transaction with more than one operation: members accept requests of 1.5 MiB
// by default.
const mirrorBytes = 512 << 10

func (b *batch) addPut(key string, value []byte) {
	b.bytes += 2*len(key) + len(value)
	b.keys, b.ops = append(b.keys, key), append(b.ops, client.OpPut(key, value))
}

// full reports whether an operation of this size no longer fits.
func (b *batch) full(maxOps uint, size int) bool {
	return len(b.ops) > 0 && (uint(len(b.ops)) >= maxOps || b.bytes+size > mirrorBytes)
}

func (b *batch) delete(key string) {
	b.bytes += 2 * len(key)
	b.keys, b.ops = append(b.keys, key), append(b.ops, client.OpDelete(key))
}

// MakeMirror returns the command make-mirror.
func MakeMirror(env *cli.Env) *cobra.Command {
	var m mirror
	dest := client.Config{}
	var insecure bool
	var user, password string
	c := &cobra.Command{
		Use:     "make-mirror [options] <destination>",
		Short:   "Keep a copy of keys in another cluster",
		Long:    mirrorHelp,
		Example: mirrorExample,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 2:
				return exit.Usage("make-mirror takes one destination argument, HOST:PORT or a URL; a prefix is a flag: vigilctl make-mirror %s", mirrorOf(args))
			case len(args) != 1:
				return exit.Usage("make-mirror takes one destination argument")
			case m.noDestPrefix && m.destPrefix != "":
				return exit.Usage("`--dest-prefix` and `--no-dest-prefix` cannot be set at the same time, choose one")
			case m.maxOps == 0:
				return exit.Usage("--max-txn-ops is 0: a transaction needs at least one operation")
			}
			if m.destPrefix == "" && !m.noDestPrefix {
				m.destPrefix = m.prefix
			}
			return env.RunUntilInterrupted(c, func(s cli.Session) error {
				to, err := destination(s.Ctx, env, dest, strings.Split(args[0], ","), insecure,
					user, password)
				if err != nil {
					return err
				}
				defer to.Close()
				m.from, m.to = s.Client, to
				if err := m.checkLoop(); err != nil {
					return err
				}
				return m.runAndReport(s.Ctx, env.Stdout)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&m.prefix, "prefix", "", "copy only keys with this prefix")
	flags.Int64Var(&m.rev, "rev", 0, "copy only changes, from this revision on")
	flags.UintVar(&m.maxOps, "max-txn-ops", 128,
		"the largest number of `OPERATIONS` in a transaction")
	flags.StringVar(&m.destPrefix, "dest-prefix", "",
		"the prefix at the destination instead of --prefix; default: the same")
	flags.BoolVar(&m.noDestPrefix, "no-dest-prefix", false,
		"remove --prefix from keys at the destination")
	flags.StringVar(&dest.TLSFiles.Cert, "dest-cert", "",
		"identify at the destination with this certificate `FILE`")
	flags.StringVar(&dest.TLSFiles.Key, "dest-key", "", "the `FILE` with the key of --dest-cert")
	flags.StringVar(&dest.TLSFiles.CA, "dest-cacert", "",
		"verify certificates of the destination with this `FILE` of authorities")
	flags.BoolVar(&insecure, "dest-insecure-transport", true,
		"connect to the destination without TLS, unless a URL or certificate requires it")
	flags.StringVar(&user, "dest-user", "",
		"the user at the destination, `NAME[:PASSWORD]`; without a password the command asks for it")
	flags.StringVar(&password, "dest-password", "", "the password of --dest-user")
	return c
}

// isEndpoint reports whether a text can be the address of a member.
func isEndpoint(s string) bool {
	cfg := client.Config{Endpoints: []string{s}}
	return cfg.Validate() == nil
}

// checkLoop returns an error if the mirror would copy its own writes forever.
func (m *mirror) checkLoop() error {
	if !strings.HasPrefix(m.destPrefix, m.prefix) {
		return nil
	}
	for _, at := range m.to.Endpoints() {
		if slices.Contains(m.from.Endpoints(), at) {
			return exit.Usage("the destination %s is a member of the source, and the keys would be copied to what is copied: name another cluster, or a --dest-prefix that does not begin with --prefix", at)
		}
	}
	return nil
}

// mirrorOf returns the destination and the prefix, whichever order the arguments have.
func mirrorOf(args []string) string {
	to, prefix := args[0], args[1]
	if !isEndpoint(to) && isEndpoint(prefix) {
		to, prefix = prefix, to
	}
	return command.QuoteWords(to, "--prefix="+prefix)
}

// destination returns a client of the cluster that receives the copy.
func destination(ctx context.Context, env *cli.Env, cfg client.Config, endpoints []string,
	insecure bool, user, password string) (*client.Client, error) {
	cfg.Endpoints, cfg.DialTimeout, cfg.Logger = endpoints, env.Config.DialTimeout,
		env.Config.Logger
	cfg.KeepAlive, cfg.KeepAliveTimeout = env.Config.KeepAlive, env.Config.KeepAliveTimeout
	cfg.MaxSendBytes, cfg.MaxReceiveBytes = env.Config.MaxSendBytes, env.Config.MaxReceiveBytes
	if err := cli.Secure(&cfg, insecure, "--dest-", env.Stderr); err != nil {
		return nil, err
	}
	if err := env.Identify(ctx, &cfg, user, password, "--dest-",
		"Destination Password: "); err != nil {
		return nil, err
	}
	c, err := client.New(cfg)
	if err != nil {
		return nil, exit.With(exit.BadConnection, err)
	}
	return c, nil
}

// runAndReport runs the mirror and regularly prints the number of written keys.
func (m *mirror) runAndReport(ctx context.Context, stdout io.Writer) error {
	ticker := time.NewTicker(mirrorInterval)
	defer ticker.Stop()
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ended <- m.copyAndFollow(ctx) }()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintln(stdout, m.written.Load())
		case err := <-ended:
			if ctx.Err() != nil {
				return exit.Silent(exit.Interrupted)
			}
			return err
		}
	}
}

// copyAndFollow copies all keys, and then every change.
func (m *mirror) copyAndFollow(ctx context.Context) error {
	next := m.rev
	if m.rev <= 1 {
		l := m.from.List(ctx, m.prefix, client.WithPrefix())
		var b batch
		for kv, err := range l.All() {
			if err != nil {
				return err
			}
			if b.full(m.maxOps, 2*len(kv.Key)+len(kv.Value)) {
				if err := m.writeBatch(ctx, b); err != nil {
					return err
				}
				b = batch{}
			}
			b.addPut(m.destKey(kv.Key), kv.Value)
		}
		if err := m.writeBatch(ctx, b); err != nil {
			return err
		}
		next = l.Revision() + 1
	}
	for b, err := range m.from.Watch(ctx, m.prefix, client.WithPrefix(),
		client.FromRevision(next)).Batches() {
		if err != nil {
			return err
		}
		if err := m.applyEvents(ctx, b.Events); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// applyEvents writes the events of each revision in one transaction if they fit.
func (m *mirror) applyEvents(ctx context.Context, events []client.Event) error {
	var b batch
	for i, ev := range events {
		if i > 0 && (events[i-1].KV.ModRevision != ev.KV.ModRevision ||
			b.full(m.maxOps, 2*len(ev.KV.Key)+len(ev.KV.Value))) {
			if err := m.writeBatch(ctx, b); err != nil {
				return err
			}
			b = batch{}
		}
		if ev.Type == client.Delete {
			b.delete(m.destKey(ev.KV.Key))
		} else {
			b.addPut(m.destKey(ev.KV.Key), ev.KV.Value)
		}
	}
	return m.writeBatch(ctx, b)
}

// destKey returns a key's name at the destination.
func (m *mirror) destKey(key string) string {
	return m.destPrefix + strings.TrimPrefix(key, m.prefix)
}

// mirrorAttempts limits the attempts of a transaction that meets concurrent writes or has an
// unknown outcome.
const mirrorAttempts = 10

// writeBatch writes to the destination, on condition that no key has changed since the mirror's
// last write. It repeats an attempt with an unknown outcome. If the first attempt is applied later,
// the condition rejects it.
func (m *mirror) writeBatch(ctx context.Context, b batch) error {
	if len(b.ops) == 0 {
		return nil
	}
	pause := 25 * time.Millisecond
	for n := 1; ; n++ {
		r, err := m.tryBatch(ctx, b)
		switch {
		case err == nil:
			m.seen = r.Header.Revision
			if r.Succeeded {
				m.written.Add(int64(len(b.ops)))
				return nil
			}
			if n == mirrorAttempts {
				return fmt.Errorf("destination: %s or a key next to it is written concurrently again and again", keytext.Quote(b.keys[0]))
			}
			continue // use the new revision in the condition
		case errors.Is(err, client.ErrPermissionDenied) && !m.blind:
			m.blind = true // conditions need permission to read
			continue
		case n == mirrorAttempts || m.blind || !errors.Is(err, client.ErrUncertain) ||
			!client.Temporary(err):
			return fmt.Errorf("destination: %w", err)
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		case <-ctx.Done():
			return fmt.Errorf("destination: %w", err)
		}
	}
}

// tryBatch tries a transaction once.
func (m *mirror) tryBatch(ctx context.Context, b batch) (*client.TxnResponse, error) {
	if m.blind {
		return m.to.Txn(ctx).Then(b.ops...).Commit()
	}
	if m.seen == 0 {
		r, err := m.to.Txn(ctx).Commit()
		if err != nil {
			return nil, err
		}
		m.seen = r.Header.Revision
	}
	same := make([]client.Cmp, len(b.keys))
	for i, key := range b.keys {
		same[i] = client.ModRevision(key).Less(m.seen + 1)
	}
	return m.to.Txn(ctx).If(same...).Then(b.ops...).Commit()
}
