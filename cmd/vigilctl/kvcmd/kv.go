// Package kvcmd has the commands for keys and leases: get, put, del, txn, compaction, watch, lease.
package kvcmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

// getFlags are the flags of get. They also apply inside a transaction.
type getFlags struct {
	consistency, order, sortBy     string
	limit, rev                     int64
	prefix, fromKey                bool
	keysOnly, countOnly, valueOnly bool
	minCreate, maxCreate           int64
	minMod, maxMod                 int64
	stream                         bool
}

func (f *getFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.consistency, "consistency", "l",
		"l for linearizable, s for serializable: what the member has, without asking others")
	flags.StringVar(&f.order, "order", "", "ASCEND or DESCEND")
	flags.StringVar(&f.sortBy, "sort-by", "", "CREATE, KEY, MODIFY, VALUE or VERSION")
	flags.Int64Var(&f.limit, "limit", 0, "the largest number of keys to print")
	flags.BoolVar(&f.prefix, "prefix", false, "all keys with the prefix KEY")
	flags.BoolVar(&f.fromKey, "from-key", false, "KEY and all keys after it")
	flags.Int64Var(&f.rev, "rev", 0, "read the store at this revision")
	flags.BoolVar(&f.keysOnly, "keys-only", false, "print no values")
	flags.BoolVar(&f.countOnly, "count-only", false,
		"print only the number of keys; needs -w fields")
	flags.BoolVar(&f.valueOnly, "print-value-only", false, "print no keys; needs -w simple")
	flags.Int64Var(&f.minCreate, "min-create-rev", 0, "omit keys created before this revision")
	flags.Int64Var(&f.maxCreate, "max-create-rev", 0, "omit keys created after this revision")
	flags.Int64Var(&f.minMod, "min-mod-rev", 0, "omit keys last changed before this revision")
	flags.Int64Var(&f.maxMod, "max-mod-rev", 0, "omit keys last changed after this revision")
	flags.BoolVar(&f.stream, "stream", false,
		"request the answer as a stream, for ranges of any size")
}

var (
	sortOrders = map[string]etcdserverpb.RangeRequest_SortOrder{"": etcdserverpb.RangeRequest_NONE,
		"ASCEND": etcdserverpb.RangeRequest_ASCEND, "DESCEND": etcdserverpb.RangeRequest_DESCEND}
	sortFields = map[string]etcdserverpb.RangeRequest_SortTarget{"": etcdserverpb.RangeRequest_KEY,
		"CREATE": etcdserverpb.RangeRequest_CREATE, "KEY": etcdserverpb.RangeRequest_KEY,
		"MODIFY": etcdserverpb.RangeRequest_MOD, "VALUE": etcdserverpb.RangeRequest_VALUE,
		"VERSION": etcdserverpb.RangeRequest_VERSION}
)

// request builds the request from flags and arguments.
func (f *getFlags) request(args []string) (*etcdserverpb.RangeRequest, error) {
	if len(args) == 0 {
		return nil, exit.Usage("get command needs one argument as key and an optional argument as range_end")
	}
	if f.keysOnly && f.countOnly {
		return nil, exit.Usage("`--keys-only` and `--count-only` cannot be set at the same time, choose one")
	}
	r := &etcdserverpb.RangeRequest{Limit: f.limit, Revision: max(f.rev, 0), KeysOnly: f.keysOnly,
		CountOnly:         f.countOnly,
		MinCreateRevision: f.minCreate, MaxCreateRevision: f.maxCreate, MinModRevision: f.minMod,
		MaxModRevision: f.maxMod}
	var err error
	if r.Key, r.RangeEnd, err = keyRange(args, f.prefix, f.fromKey); err != nil {
		return nil, err
	}
	if f.consistency != "l" && f.consistency != "s" {
		return nil, exit.With(exit.BadFeature,
			fmt.Errorf("unknown consistency flag %q: l and s are known", f.consistency))
	}
	r.Serializable = f.consistency == "s"
	var known bool
	if r.SortOrder, known = sortOrders[strings.ToUpper(f.order)]; !known {
		return nil, exit.With(exit.BadFeature,
			fmt.Errorf("bad sort order %v: --order takes ASCEND or DESCEND", f.order))
	}
	if r.SortTarget, known = sortFields[strings.ToUpper(f.sortBy)]; !known {
		return nil, exit.With(exit.BadFeature,
			fmt.Errorf("bad sort target %v: --sort-by takes CREATE, KEY, MODIFY, VALUE or VERSION",
				f.sortBy))
	}
	if r.SortTarget == etcdserverpb.RangeRequest_KEY &&
		r.SortOrder == etcdserverpb.RangeRequest_ASCEND {
		r.SortOrder = etcdserverpb.RangeRequest_NONE // the default order
	}
	if f.maxCreate > 0 && f.minCreate > f.maxCreate {
		return nil, exit.With(exit.BadFeature,
			fmt.Errorf("--min-create-rev %d is above --max-create-rev %d",
				f.minCreate, f.maxCreate))
	}
	if f.maxMod > 0 && f.minMod > f.maxMod {
		return nil, exit.With(exit.BadFeature,
			fmt.Errorf("--min-mod-rev %d is above --max-mod-rev %d", f.minMod, f.maxMod))
	}
	return r, nil
}

// keyRange builds the range from arguments and flags. It is all keys if the prefix or the first key
// is empty.
func keyRange(args []string, prefix, fromKey bool) (key, end []byte, err error) {
	if prefix && fromKey {
		return nil, nil, exit.Usage("`--prefix` and `--from-key` cannot be set at the same time, choose one")
	}
	key = []byte(args[0])
	if len(args) > 1 {
		if prefix || fromKey {
			return nil, nil, exit.Usage("too many arguments, only accept one argument when `--prefix` or `--from-key` is set")
		}
		return key, []byte(args[1]), nil
	}
	switch {
	case (prefix || fromKey) && len(key) == 0:
		return []byte{0}, []byte{0}, nil
	case prefix:
		return key, []byte(client.PrefixEnd(args[0])), nil
	case fromKey:
		return key, []byte{0}, nil
	}
	return key, nil, nil
}

// Get returns the command get.
func Get(env *cli.Env) *cobra.Command {
	var f getFlags
	var at cli.Time
	c := &cobra.Command{
		Use:     "get [options] <key> [range_end]",
		Short:   "Read a key or a range of keys",
		Example: "  vigilctl get greeting\n  vigilctl get --prefix services/ --keys-only\n  vigilctl get a b --rev 42 -w json\n  vigilctl get --prefix services/ --at 10:42",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := f.request(args)
			if err != nil {
				return err
			}
			switch {
			case at.Given() && f.rev != 0:
				return exit.Usage("--at and --rev cannot both be given")
			case f.countOnly && env.Format != string(show.Fields):
				return exit.Usage("--count-only is only for `--write-out=fields`")
			case f.valueOnly && env.Format != string(show.Simple):
				return exit.Usage("print-value-only is only for `--write-out=simple`")
			}
			noteNegative(env, "--limit", f.limit, "all keys are printed")
			noteNegative(env, "--rev", f.rev, "the newest revision is read")
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				if at.Given() {
					if r.Revision, err = at.Revision(s.Ctx, s.Client); err != nil {
						return show.Answer{}, err
					}
				}
				var resp *etcdserverpb.RangeResponse
				if f.stream {
					resp, err = rangeStream(s, r)
				} else {
					resp, err = etcdserverpb.NewKVClient(s.Conn).Range(s.Ctx, r)
				}
				if err == nil && resp.GetCount() == 0 && env.Format == string(show.Simple) {
					noteNothing(env, s, r.Key, r.RangeEnd, r.Revision)
				}
				return show.Range(resp, f.valueOnly), cli.AtRevision(err, string(r.Key), r.Revision)
			})
		},
	}
	f.addFlags(c.Flags())
	c.Flags().Var(&at, "at", "read the store as it was at this `TIME`: "+cli.TimeFormats)
	for name, words := range map[string][]string{"consistency": {"l", "s"},
		"order":   {"ASCEND", "DESCEND"},
		"sort-by": {"CREATE", "KEY", "MODIFY", "VALUE", "VERSION"}} {
		command.CompleteFlag(c, name, words)
	}
	return c
}

// noteNegative notes for a person that a negative number has no effect, as in etcdctl.
func noteNegative(env *cli.Env, flag string, n int64, instead string) {
	if n < 0 {
		env.Note("%s %d is below 0: %s", flag, n, instead)
	}
}

// noteEmptyRange notes for a person that a range cannot contain a key, and reports whether that is
// so.
func noteEmptyRange(env *cli.Env, key, end []byte) bool {
	if len(end) == 0 || string(end) == "\x00" || bytes.Compare(end, key) > 0 {
		return false
	}
	env.Note("no key can be in the range from %q to %q: its end is not after its first key", key,
		end)
	return true
}

// noteNothing notes for a person why a range may have no keys at a revision.
func noteNothing(env *cli.Env, s cli.Session, key, end []byte, rev int64) {
	text := string(key)
	switch prefixEnd := client.PrefixEnd(text); {
	case !env.Hints() || noteEmptyRange(env, key, end):
	case text == "\x00":
		env.Note("there are no keys")
	case string(end) == prefixEnd:
		env.Note("no key begins with %q", text)
	case len(end) > 0:
		env.Note("no key is in the range")
	case text != strings.TrimSpace(text):
		env.Note("there is no key %q; it begins or ends with white space", text)
	default:
		r, err := etcdserverpb.NewKVClient(s.Conn).Range(s.Ctx,
			&etcdserverpb.RangeRequest{Key: key, RangeEnd: []byte(prefixEnd), Revision: rev,
				CountOnly: true})
		if err == nil && r.GetCount() > 0 {
			env.Note("there is no key %q; --prefix selects the keys that begin with it (%d)",
				text, r.GetCount())
		} else {
			env.Note("there is no key %q", text)
		}
	}
}

// rangeStream receives an answer as a stream and joins its parts.
func rangeStream(s cli.Session, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	stream, err := etcdserverpb.NewKVClient(s.Conn).RangeStream(s.Ctx, r)
	if err != nil {
		return nil, err
	}
	whole := &etcdserverpb.RangeResponse{}
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return whole, nil
		}
		if err != nil {
			return nil, err
		}
		part := piece.GetRangeResponse()
		if part == nil {
			return nil, errors.New("the member has sent a piece of an answer without content")
		}
		part.Kvs = append(whole.GetKvs(), part.GetKvs()...)
		whole = part // the last part has header, more and count
	}
}

// putFlags are the flags of put. They also apply inside a transaction.
type putFlags struct {
	lease                            string
	prevKV, ignoreValue, ignoreLease bool
}

func (f *putFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.lease, "lease", "0", "attach the key to this lease, an `ID` in hexadecimal")
	flags.BoolVar(&f.prevKV, "prev-kv", false, "print the previous key-value pair")
	flags.BoolVar(&f.ignoreValue, "ignore-value", false, "keep the current value of the key")
	flags.BoolVar(&f.ignoreLease, "ignore-lease", false, "keep the current lease of the key")
}

const putArgs = "put command needs 1 argument and input from stdin or 2 arguments"

// request builds the request from flags and arguments. It reads the value from in if the arguments
// do not have it.
func (f *putFlags) request(args []string, in io.Reader) (*etcdserverpb.PutRequest, error) {
	switch {
	case len(args) == 0: // like etcdctl, ignore arguments after the value
		return nil, exit.Usage(putArgs)
	case f.ignoreValue && len(args) > 1:
		return nil, exit.Usage("put command needs only 1 argument when 'ignore-value' is set")
	}
	lease, err := leaseID(f.lease)
	if err != nil {
		return nil, err
	}
	r := &etcdserverpb.PutRequest{Key: []byte(args[0]), Lease: lease, PrevKv: f.prevKV,
		IgnoreValue: f.ignoreValue, IgnoreLease: f.ignoreLease}
	switch {
	case f.ignoreValue:
	case len(args) > 1:
		r.Value = []byte(args[1])
	default:
		if r.Value, err = io.ReadAll(in); errors.Is(err, cli.ErrInterrupted) {
			return nil, err
		} else if err != nil || len(r.Value) == 0 {
			return nil, exit.Usage(putArgs)
		}
	}
	return r, nil
}

// leaseID parses the ID of a lease.
func leaseID(s string) (int64, error) {
	id, err := command.Hex(s)
	if err != nil {
		return 0, exit.Usage("bad lease ID (%w), expecting ID in Hex%s", err, inHex(s))
	}
	return id, nil
}

// Put returns the command put.
func Put(env *cli.Env) *cobra.Command {
	var f putFlags
	c := &cobra.Command{
		Use:   "put [options] <key> [value]",
		Short: "Write a key",
		Long: `Write a key. Without a value argument the value is all of standard input.

A value that begins with a dash needs "--" before it: vigilctl put key -- -value`,
		Example: "  vigilctl put greeting hello\n  vigilctl put config < config.json\n  vigilctl put here \"$HOSTNAME\" --lease 694d81417acd4754",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := f.request(args, env.Input(c.Context()))
			if err != nil {
				return err
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				resp, err := etcdserverpb.NewKVClient(s.Conn).Put(s.Ctx, r)
				if key := string(r.Key); err == nil && key != strings.TrimSpace(key) {
					env.Note("the key begins or ends with white space: %q", key)
				}
				return show.Put(resp), err
			})
		},
	}
	f.addFlags(c.Flags())
	return c
}

// delFlags are the flags of del. They also apply inside a transaction.
type delFlags struct{ prefix, fromKey, prevKV, isRange bool }

func (f *delFlags) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&f.prefix, "prefix", false, "all keys with the prefix KEY")
	flags.BoolVar(&f.prevKV, "prev-kv", false, "print the previous key-value pairs")
	flags.BoolVar(&f.fromKey, "from-key", false, "KEY and all keys after it")
	flags.BoolVar(&f.isRange, "range", false,
		"confirm that a range is meant, and delete it without a delay")
}

// request builds the request from flags and arguments.
func (f *delFlags) request(args []string) (*etcdserverpb.DeleteRangeRequest, error) {
	if len(args) == 0 || len(args) > 2 {
		return nil, exit.Usage("del command needs one argument as key and an optional argument as range_end")
	}
	key, end, err := keyRange(args, f.prefix, f.fromKey)
	if err != nil {
		return nil, err
	}
	return &etcdserverpb.DeleteRangeRequest{Key: key, RangeEnd: end, PrevKv: f.prevKV}, nil
}

// rangePause is how long del waits before it deletes a range that was given without --range.
const rangePause = 2 * time.Second

const delHelp = `Delete a key or a range of keys.

On a terminal the command asks before it deletes all keys that there are: with --prefix "" or --from-key "",
or with any other range that has them all.`

// Del returns the command del.
func Del(env *cli.Env) *cobra.Command {
	var f delFlags
	var yes cli.Yes
	c := &cobra.Command{
		Use:     "del [options] <key> [range_end]",
		Short:   "Delete a key or a range of keys",
		Long:    delHelp,
		Example: "  vigilctl del greeting\n  vigilctl del --prefix services/old/ --prev-kv",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := f.request(args)
			if err != nil {
				return err
			}
			if len(args) > 1 && !f.isRange {
				fmt.Fprintf(env.Stderr,
					"Warning: Keys between %q and %q will be deleted. Please interrupt the command within next 2 seconds to cancel. "+
						"You can provide `--range` flag to avoid the delay.\n", args[0], args[1])
				select {
				case <-time.After(rangePause):
				case <-c.Context().Done():
					return exit.With(exit.Interrupted,
						errors.New("interrupted; nothing was deleted"))
				}
			}
			question := func(s cli.Session) (string, error) { return deletionQuestion(s, r) }
			return env.CallAsking(c, yes, "nothing was deleted", question,
				func(s cli.Session) (show.Answer, error) {
					resp, err := etcdserverpb.NewKVClient(s.Conn).DeleteRange(s.Ctx, r)
					if err == nil && resp.GetDeleted() == 0 {
						noteNothing(env, s, r.Key, r.RangeEnd, 0)
					}
					return show.Delete(resp), err
				})
		},
	}
	f.addFlags(c.Flags())
	yes.AddFlag(c)
	return c
}

// deletionQuestion returns the question to ask before deleting all keys, "" before any other
// deletion. It tells how many there are if the user may read them.
func deletionQuestion(s cli.Session, r *etcdserverpb.DeleteRangeRequest) (string, error) {
	if len(r.RangeEnd) == 0 {
		return "", nil
	}
	everything := string(r.Key) == "\x00" && string(r.RangeEnd) == "\x00"
	all, denied, err := countKeys(s, []byte{0}, []byte{0})
	switch {
	case err != nil:
		return "", err
	case denied && everything:
		return "This deletes all keys of the cluster. Delete them?", nil
	case denied || all == 0:
		return "", nil
	}
	if !everything {
		n, denied, err := countKeys(s, r.Key, r.RangeEnd)
		if err != nil || denied || n < all {
			return "", err
		}
	}
	if all == 1 {
		return "This deletes the only key of the cluster. Delete it?", nil
	}
	return fmt.Sprintf("This deletes all %d keys of the cluster. Delete them?", all), nil
}

// countKeys returns the number of keys in a range. denied reports that the user may not read the
// keys.
func countKeys(s cli.Session, key, end []byte) (n int64, denied bool, err error) {
	r, err := etcdserverpb.NewKVClient(s.Conn).Range(s.Ctx,
		&etcdserverpb.RangeRequest{Key: key, RangeEnd: end, CountOnly: true})
	if err != nil && status.Convert(err).Message() == client.ErrPermissionDenied.Error() {
		return 0, true, nil
	}
	return r.GetCount(), false, err
}

const compactionHelp = `Discard superseded revisions before a revision: values that were replaced or deleted before it can no
longer be read, and watches cannot start there.

On a terminal the command asks before it discards all of them: when REVISION is the newest.`

// compactionQuestion returns the question to ask before compacting at the newest revision, ""
// before any other compaction.
func compactionQuestion(s cli.Session, rev int64) (string, error) {
	now, err := etcdserverpb.NewKVClient(s.Conn).Range(s.Ctx,
		&etcdserverpb.RangeRequest{Key: []byte{0}, CountOnly: true})
	switch {
	case err != nil && status.Convert(err).Message() == client.ErrPermissionDenied.Error():
		return "", nil // a user who may not read a key is hardly root, and only root may compact
	case err != nil:
		return "", err
	case rev != now.GetHeader().GetRevision():
		return "", nil
	}
	return fmt.Sprintf("Revision %d is the newest: this discards every older value of every key. Discard them?", rev), nil
}

// Compaction returns the command compaction.
func Compaction(env *cli.Env) *cobra.Command {
	var physical bool
	var yes cli.Yes
	c := &cobra.Command{
		Use:     "compaction [options] <revision>",
		Short:   "Discard superseded revisions before a revision",
		Long:    compactionHelp,
		Example: "  vigilctl compaction 4200 --physical",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usage("compaction command needs 1 argument")
			}
			rev, err := command.Whole(args[0])
			if err != nil {
				return exit.With(exit.Failure, fmt.Errorf("bad revision: %w", err))
			}
			return env.CallAsking(c, yes, "nothing was discarded",
				func(s cli.Session) (string, error) { return compactionQuestion(s, rev) },
				func(s cli.Session) (show.Answer, error) {
					_, err := etcdserverpb.NewKVClient(s.Conn).Compact(s.Ctx,
						&etcdserverpb.CompactionRequest{Revision: rev, Physical: physical})
					return show.Message(fmt.Sprintf("compacted revision %d", rev)),
						cli.AtRevision(err, "", rev)
				})
		},
	}
	c.Flags().BoolVar(&physical, "physical", false, "wait until the space has been freed")
	yes.AddFlag(c)
	return c
}
