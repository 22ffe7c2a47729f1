// Package lockcmd has the commands lock and elect.
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
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

const lockHelp = `Acquire a lock, which one holder at a time has. Without a command, print the key of the lock and hold
the lock until the program is interrupted. With a command, hold the lock while the command runs, and
exit with its exit code. The command has ETCD_LOCK_KEY and ETCD_LOCK_REV in its environment: the
latter is higher for every later holder, and the protected resource should reject a lower one than it
has seen. SIGTERM, SIGHUP and SIGINT are passed on to the command (SIGHUP not under nohup).

A holder that fails to renew the lock for --ttl seconds loses it. The command receives SIGTERM then, and
the exit code is not 0.`

// Lock returns the command lock.
func Lock(env *cli.Env) *cobra.Command {
	var ttl int64
	c := &cobra.Command{
		Use:     "lock <lockname> [exec-command arg1 arg2 ...]",
		Short:   "Hold a lock, for instance while a command runs",
		Long:    lockHelp,
		Example: "  vigilctl lock backup\n  vigilctl lock backup --ttl 30 -- /usr/local/bin/backup --all",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usage("lock takes a lock name argument and an optional command to execute")
			}
			return env.RunUntilInterrupted(c,
				func(s cli.Session) error {
					return hold(env, s, args[0], args[1:],
						command.Seconds(ttl))
				})
		},
	}
	c.Flags().Int64Var(&ttl, "ttl", 10, "`SECONDS` without a renewal after which the lock is lost")
	return c
}

// hold holds a lock while a command runs, or until the program is interrupted.
func hold(env *cli.Env, s cli.Session, name string, command []string, ttl time.Duration) error {
	se, err := concurrency.NewSession(s.Ctx, s.Client, ttl)
	if err != nil {
		return err
	}
	defer closeSession(se)
	held, err := limited(s.Ctx, env.Timeout(),
		func() (*concurrency.Held, error) { return concurrency.NewMutex(se, name).Lock(s.Ctx) })
	if err != nil {
		return err
	}
	if len(command) > 0 {
		err = runLocked(s.Ctx, env, held, command)
	} else if err = printKey(env, s, held.Key(), 0); err == nil {
		err = await(s.Ctx, held, "session expired")
	}
	if lost := release(env, held); err == nil {
		err = lost
	}
	return err
}

// runLocked runs a command; the error has its exit code. It passes SIGTERM, SIGHUP and SIGINT on to
// the command, and holds the lock until the command ends. If the lock is lost earlier, it sends
// SIGTERM to the command.
func runLocked(ctx context.Context, env *cli.Env, held *concurrency.Held, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	// The last value of a variable counts: this lock's, not an outer lock's.
	cmd.Env = append(os.Environ(), "ETCD_LOCK_KEY="+held.Key(),
		fmt.Sprintf("ETCD_LOCK_REV=%d", held.Fence()))
	cmd.Stdout, cmd.Stderr = env.Stdout.Unwrap(), env.RawStderr()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, cli.Signals(syscall.SIGTERM, syscall.SIGHUP, os.Interrupt)...)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return ctx.Err() // interrupted before this function caught signals
	}
	if err := held.Err(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	lost := held.Lost()
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case s := <-signals:
			// The terminal sends Ctrl-C to the whole foreground process group.
			if s != os.Interrupt || !term.IsTerminal(int(os.Stdin.Fd())) {
				_ = cmd.Process.Signal(s) // the command may have ended
			}
		case <-lost:
			lost = nil
			fmt.Fprintf(env.Stderr,
				"the lock is lost while the command runs, which receives SIGTERM: %v\n", held.Err())
			_ = cmd.Process.Signal(syscall.SIGTERM) // the command may have ended
		}
	}
	var status *exec.ExitError
	if !errors.As(err, &status) {
		return err
	}
	code := status.ExitCode()
	if w, ok := status.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		code = 128 + int(w.Signal()) // as a shell does
	}
	return exit.With(code, err)
}

// await waits for an interrupt. It returns an error if the lock or leadership is lost earlier.
func await(ctx context.Context, held *concurrency.Held, lost string) error {
	select {
	case <-ctx.Done():
		return nil
	case <-held.Lost():
		return fmt.Errorf("%s: %w", lost, held.Err())
	}
}

// release gives up a lock or leadership. If no member answers, its key remains until the lease
// ends.
func release(env *cli.Env, held *concurrency.Held) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := limited(ended, env.Timeout(),
		func() (struct{}, error) { return struct{}{}, held.Unlock(context.Background()) })
	return err
}

// limited returns the result of f, or an error if f is still running limit after the end of the
// context: the library tries to delete a key for as long as its lease lives.
func limited[T any](ctx context.Context, limit time.Duration, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.v, r.err
	case <-time.After(limit):
		var none T
		return none, fmt.Errorf("no member has deleted the key in %v: it remains until its lease ends", limit)
	}
}

// closeSession closes a session, also after an interrupt.
func closeSession(se *concurrency.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = se.Close(ctx) // after an error the lease expires
}

// printKey prints a key at a revision, 0 for the current one.
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
