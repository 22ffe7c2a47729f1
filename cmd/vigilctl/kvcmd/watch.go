package kvcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

const watchHelp = `Print the changes of a key or a range of keys as they happen, or from a revision on, each once and in
order. If the member fails, the watch continues at another member without a gap.

After -- follows a command to run for each event, with ETCD_WATCH_REVISION, ETCD_WATCH_EVENT_TYPE,
ETCD_WATCH_KEY and ETCD_WATCH_VALUE in its environment. If it fails, the watch ends.

With -i the lines "watch [options] KEY [RANGE_END] [-- COMMAND]" and "progress" are read from standard
input. The key may be given as ETCDCTL_WATCH_KEY, and the end of the range as ETCDCTL_WATCH_RANGE_END.`

const watchExample = `  vigilctl watch --prefix services/
  vigilctl watch config --rev 42 --prev-kv -w json
  vigilctl watch --prefix services/ --since 5m
  vigilctl watch config -- sh -c 'echo "changed at $ETCD_WATCH_REVISION"'`

// watchFlags are the flags of watch. They also apply to interactive watches.
type watchFlags struct {
	rev                      int64
	prefix, prevKV, progress bool
	interactive              bool
}

func (f *watchFlags) addFlags(flags *pflag.FlagSet) {
	flags.BoolVarP(&f.interactive, "interactive", "i", false,
		"read watch requests from standard input")
	flags.BoolVar(&f.prefix, "prefix", false, "all keys with the prefix KEY")
	flags.Int64Var(&f.rev, "rev", 0, "start at this revision")
	flags.BoolVar(&f.prevKV, "prev-kv", false, "print the previous key-value pair too")
	flags.BoolVar(&f.progress, "progress-notify", false,
		"print progress notifications while there are no events")
}

// These texts are etcdctl's.
var (
	errWatchArgs     = exit.Usage("bad number of arguments")
	errWatchConflict = exit.Usage("bad number of arguments (found conflicting environment key)")
	errWatchCommand  = exit.Usage("bad number of arguments (found separator --, but no commands)")
)

// watchRequest is one watch, and the command to run for its events.
type watchRequest struct {
	create  *etcdserverpb.WatchCreateRequest
	command []string
}

// request parses a watch request; dash is the index of the command in args, -1 without a command.
func (f *watchFlags) request(args []string, dash int) (watchRequest, error) {
	var r watchRequest
	if dash >= 0 {
		r.command, args = args[dash:], args[:dash]
		if len(r.command) == 0 {
			return r, errWatchCommand
		}
	}
	key, end := watchEnvironment()
	switch {
	case key == "" && end != "":
		return r, exit.Usage("ETCDCTL_WATCH_KEY is empty but got ETCDCTL_WATCH_RANGE_END=%q", end)
	case key != "" && len(args) > 0:
		return r, errWatchConflict
	case key != "" && end != "":
		args = []string{key, end}
	case key != "":
		args = []string{key}
	}
	if len(args) > 2 {
		args = args[:1] // etcdctl ignores the other arguments then
	}
	switch {
	case len(args) == 0:
		return r, errWatchArgs
	case len(args) == 2 && f.prefix:
		return r, exit.Usage("`range_end` and `--prefix` are mutually exclusive")
	}
	r.create = &etcdserverpb.WatchCreateRequest{StartRevision: f.rev, PrevKv: f.prevKV,
		ProgressNotify: f.progress}
	var err error
	r.create.Key, r.create.RangeEnd, err = keyRange(args, f.prefix, false)
	return r, err
}

// watchEnvironment reads the key and the end of the range from the environment.
func watchEnvironment() (key, end string) {
	return cli.Getenv("WATCH_KEY"), cli.Getenv("WATCH_RANGE_END")
}

// Watch returns the command watch.
func Watch(env *cli.Env) *cobra.Command {
	var f watchFlags
	var since cli.Time
	c := &cobra.Command{
		Use:     "watch [options] [key or prefix] [range_end] [--] [exec-command arg1 arg2 ...]",
		Short:   "Print changes as they happen",
		Long:    watchHelp,
		Example: watchExample,
		RunE: func(c *cobra.Command, args []string) error {
			if key, end := watchEnvironment(); key == "" && end != "" {
				return exit.Usage("ETCDCTL_WATCH_KEY is empty but got ETCDCTL_WATCH_RANGE_END=%q",
					end)
			}
			if _, err := env.Printer(); err != nil {
				return err
			}
			if since.Given() && (f.rev != 0 || f.interactive) {
				return exit.Usage("--since cannot be given with --rev or -i")
			}
			if f.interactive {
				return watchInteractive(c.Context(), env)
			}
			r, err := f.request(args, c.ArgsLenAtDash())
			if err != nil {
				return err
			}
			if since.Given() {
				err := env.Run(c, func(s cli.Session) error {
					rev, err := since.Revision(s.Ctx, s.Client)
					r.create.StartRevision = rev + 1
					return err
				})
				if err != nil {
					return err
				}
			}
			noteEmptyRange(env, r.create.Key, r.create.RangeEnd)
			w := newWatchStream(env)
			w.addWatch(r)
			return w.runWatches(c.Context())
		},
	}
	f.addFlags(c.Flags())
	c.Flags().Var(&since, "since", "start with the changes after this `TIME`: "+cli.TimeFormats)
	return c
}

// watchInteractive reads lines from standard input and runs their requests.
func watchInteractive(ctx context.Context, env *cli.Env) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := newWatchStream(env)
	w.interactive = true
	ended := make(chan error, 1)
	go func() { ended <- w.runWatches(ctx) }()
	lines := make(chan string)
	read := make(chan error, 1)
	go func() {
		in := bufio.NewReader(env.Stdin)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				read <- err
				return
			}
			select {
			case lines <- strings.TrimSuffix(line, "\n"):
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case line := <-lines:
			if err := runLine(env, w, line); err != nil {
				return err
			}
		case err := <-read:
			return exit.With(exit.InvalidInput,
				fmt.Errorf("error reading watch request line: %w", err))
		case err := <-ended:
			return err
		}
	}
}

// runLine runs the request in a line. It prints an invalid request. It returns an error only where
// etcdctl ends.
func runLine(env *cli.Env, w *watchStream, line string) error {
	words, err := splitWords(line)
	if err != nil {
		return exit.With(exit.InvalidInput, err)
	}
	if len(words) == 0 {
		fmt.Fprintf(env.Stderr, "Invalid command: %s (watch and progress supported)\n", line)
		return nil
	}
	switch words[0] {
	case "progress":
		w.requestProgress()
		return nil
	case "watch":
	default:
		fmt.Fprintf(env.Stderr, "Invalid command %s (only support watch)\n", line)
		return nil
	}
	if key, _ := watchEnvironment(); len(words) < 2 && key == "" {
		fmt.Fprintf(env.Stderr, "Invalid command %s (command type or key is not provided)\n", line)
		return nil
	}
	var f watchFlags
	flags := pflag.NewFlagSet("watch", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	f.addFlags(flags)
	if err := flags.Parse(words[1:]); err != nil {
		return exit.Usage("%w", err)
	}
	r, err := f.request(flags.Args(), flags.ArgsLenAtDash())
	if err != nil && (errors.Is(err, errWatchArgs) || errors.Is(err, errWatchConflict) ||
		errors.Is(err, errWatchCommand)) {
		return err
	}
	if err != nil {
		fmt.Fprintf(env.Stderr, "Invalid command %s (%v)\n", line, err)
		return nil
	}
	w.addWatch(r)
	return nil
}

// printWatch prints an answer of a watch and runs the command for each event.
func printWatch(ctx context.Context, env *cli.Env, r *etcdserverpb.WatchResponse,
	command []string) error {
	if len(r.GetEvents()) == 0 && !r.GetCanceled() {
		if _, err := fmt.Fprintf(env.Stdout, "progress notify: %d\n",
			r.GetHeader().GetRevision()); err != nil {
			return err
		}
	}
	if err := env.Print(show.Watch(r)); err != nil {
		return err
	}
	if len(command) == 0 {
		return nil
	}
	for _, ev := range r.GetEvents() {
		if err := runForEvent(ctx, env, r.GetHeader().GetRevision(), ev, command); err != nil {
			fmt.Fprintf(env.Stderr, "command %q error (%v)\n", command, err)
			return exit.Silent(exit.Failure)
		}
	}
	return nil
}

func runForEvent(ctx context.Context, env *cli.Env, rev int64, ev *mvccpb.Event,
	command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = slices.Concat(os.Environ(),
		[]string{fmt.Sprintf("ETCD_WATCH_REVISION=%d", rev),
			fmt.Sprintf("ETCD_WATCH_EVENT_TYPE=%q", ev.GetType()),
			fmt.Sprintf("ETCD_WATCH_KEY=%q", ev.GetKv().GetKey()),
			fmt.Sprintf("ETCD_WATCH_VALUE=%q", ev.GetKv().GetValue())})
	cmd.Stdout, cmd.Stderr = env.Stdout.Unwrap(), env.RawStderr()
	return cmd.Run()
}
