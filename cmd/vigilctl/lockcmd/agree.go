package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/client/concurrency"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

const lockHelp = `Wait for a lock that one holder at a time has. Without a command the key that stands for the lock is
printed, and the lock held until the program is interrupted. With one the lock is held while the
command runs, and the exit code is that of the command, which finds ETCD_LOCK_KEY and ETCD_LOCK_REV
in its environment: the latter is higher for every later holder, and what the lock protects
should refuse a lower one than it has seen. SIGTERM, SIGHUP and SIGINT are passed on to the command
(SIGHUP not under nohup).

Who holds a lock and is not heard of for --ttl seconds loses it.`

func Lock(env *cli.Env) *cobra.Command {
	var ttl int
	c := &cobra.Command{
		Use:     "lock <lockname> [exec-command arg1 arg2 ...]",
		Short:   "Hold a lock, for the time that a command runs",
		Long:    lockHelp,
		Example: "  vigilctl lock backup\n  vigilctl lock backup --ttl 30 -- /usr/local/bin/backup --all",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usage("lock takes a lock name argument and an optional command to execute")
			}
			return env.RunUntilInterrupted(c, func(s cli.Session) error { return lock(env, s, args[0], args[1:], time.Duration(ttl)*time.Second) })
		},
	}
	c.Flags().IntVar(&ttl, "ttl", 10, "`SECONDS` without a sign of life after which the lock is lost")
	return c
}

// lock holds a lock while a command runs, or until the program is interrupted.
func lock(env *cli.Env, s cli.Session, name string, command []string, ttl time.Duration) error {
	se, err := concurrency.NewSession(s.Ctx, s.Client, ttl)
	if err != nil {
		return err
	}
	defer closeSession(se)
	held, err := concurrency.NewMutex(se, name).Lock(s.Ctx)
	if err != nil {
		return err
	}
	if len(command) > 0 {
		err = runLocked(s.Ctx, env, held, command)
	} else if err = printKey(env, s, held.Key(), 0); err == nil {
		err = await(s.Ctx, held, "session expired")
	}
	if lost := held.Unlock(context.Background()); err == nil {
		err = lost
	}
	return err
}

// runLocked runs a command; the error has its exit code. SIGTERM, SIGHUP and SIGINT are passed on to it: the lock is
// held until it has ended.
func runLocked(ctx context.Context, env *cli.Env, held *concurrency.Held, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	// The last value of a variable counts: this lock's, not that of a lock around it.
	cmd.Env = append(os.Environ(), "ETCD_LOCK_KEY="+held.Key(), fmt.Sprintf("ETCD_LOCK_REV=%d", held.Fence()))
	cmd.Stdout, cmd.Stderr = env.Stdout.Unwrap(), env.Stderr
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, cli.Signals(syscall.SIGTERM, syscall.SIGHUP, os.Interrupt)...)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return ctx.Err() // interrupted before the signals came here
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case s := <-signals:
			// Ctrl-C reaches the whole foreground process group by itself.
			if s != os.Interrupt || !term.IsTerminal(int(os.Stdin.Fd())) {
				_ = cmd.Process.Signal(s) // it may have ended
			}
		}
	}
	if lost := held.Err(); lost != nil {
		fmt.Fprintf(env.Stderr, "warning: the lock was not held all the time that the command ran: %v\n", lost)
	}
	var status *exec.ExitError
	if !errors.As(err, &status) {
		return err
	}
	code := status.ExitCode()
	if w, ok := status.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		code = 128 + int(w.Signal()) // like a shell
	}
	return exit.With(code, err)
}

// await waits until the program is interrupted, and fails if what is held is lost before.
func await(ctx context.Context, held *concurrency.Held, lost string) error {
	select {
	case <-ctx.Done():
		return nil
	case <-held.Lost():
		return fmt.Errorf("%s: %w", lost, held.Err())
	}
}

// closeSession ends a session also when the program was interrupted.
func closeSession(se *concurrency.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = se.Close(ctx) // what cannot be given back goes with the lease
}

// printKey prints a key as it was at a revision, 0 for now.
func printKey(env *cli.Env, s cli.Session, key string, rev int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Ctx), env.CommandTimeout)
	defer cancel()
	api := etcdserverpb.NewKVClient(s.Conn)
	r, err := api.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(key), Revision: rev})
	if rev > 0 && err != nil && cli.CallError(err).Error() == client.ErrCompacted.Error() {
		r, err = api.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(key)})
	}
	switch {
	case err != nil:
		return err
	case len(r.GetKvs()) == 0 && rev == 0:
		return fmt.Errorf("%q was deleted by somebody else", key)
	}
	return env.Print(show.Range(r, false))
}

const electHelp = `Take part in an election: wait until nobody has the office, take it, print the key that stands for it
and what is proposed, and keep it until the program is interrupted. With --listen, print
who has the office, whenever that changes.`

func Elect(env *cli.Env) *cobra.Command {
	var listen bool
	c := &cobra.Command{
		Use:     "elect <election-name> [proposal]",
		Short:   "Take part in an election, or watch one",
		Long:    electHelp,
		Example: "  vigilctl elect scheduler \"$HOSTNAME\"\n  vigilctl elect --listen scheduler",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) != 1 && len(args) != 2:
				return exit.Usage("elect takes one election name argument and an optional proposal argument")
			case len(args) == 1 && !listen:
				return exit.Usage("no proposal argument but -l not set")
			case len(args) == 2 && listen:
				return exit.Usage("proposal given but -l is set")
			}
			return env.RunUntilInterrupted(c, func(s cli.Session) error {
				if listen {
					return observe(env, s, args[0])
				}
				return campaign(env, s, args[0], args[1])
			})
		},
	}
	c.Flags().BoolVarP(&listen, "listen", "l", false, "only tell who has the office")
	return c
}

func observe(env *cli.Env, s cli.Session, name string) error {
	for leader, err := range concurrency.NewElection(s.Client, name).Observe(s.Ctx) {
		if s.Ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = printKey(env, s, leader.Key, leader.Revision)
		}
		if err != nil {
			return fmt.Errorf("elect: observer lost: %w", cli.CallError(err))
		}
	}
	return nil
}

// electionTTL is the time to live of a candidate's session, etcdctl's.
const electionTTL = 60 * time.Second

func campaign(env *cli.Env, s cli.Session, name, proposal string) error {
	se, err := concurrency.NewSession(s.Ctx, s.Client, electionTTL)
	if err != nil {
		return err
	}
	defer closeSession(se)
	office, err := concurrency.NewElection(s.Client, name).Campaign(s.Ctx, se, []byte(proposal))
	if err != nil {
		return err
	}
	if err = printKey(env, s, office.Key(), 0); err == nil {
		err = await(s.Ctx, &office.Held, "elect: session expired")
	}
	if lost := office.Resign(context.Background()); err == nil {
		err = lost
	}
	return err
}
