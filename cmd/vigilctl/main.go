// Command vigilctl talks to a cluster and maintains its members. Run it with --help for its
// commands.
//
// Exit codes are etcdctl's, and one more: 0 if all is well, 1 if the command found or met a
// failure or the command line has an unknown flag or command, 2 if no connection can be configured,
// 3 for invalid input, 4 for an unsupported value of a flag, 5 if the command was interrupted or
// something is unhealthy, 6 if keys were left because they have changed, 128 for bad arguments. If
// no program reads the output any more, SIGPIPE ends it.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/archivecmd"
	"vigil/cmd/vigilctl/authcmd"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/clustercmd"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/complete"
	"vigil/cmd/vigilctl/doctor"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keyview"
	"vigil/cmd/vigilctl/kvcmd"
	"vigil/cmd/vigilctl/loadtest"
	"vigil/cmd/vigilctl/lockcmd"
	"vigil/cmd/vigilctl/monitor"
	"vigil/cmd/vigilctl/offline"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
	"vigil/cmd/vigilctl/transfer"
)

func main() {
	if !signal.Ignored(syscall.SIGPIPE) {
		// a write to a closed pipe returns an error, and commands clean up after it
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	}
	ctx, stop := signal.NotifyContext(context.Background(),
		cli.Signals(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if code == exit.ClosedPipe {
		signal.Reset(syscall.SIGPIPE)
		_, _ = os.Stdout.WriteString("\n") // the reader has gone: the signal ends the program
	}
	os.Exit(code)
}

// run executes a command line and returns the exit code. The command ends when ctx ends or when its
// output cannot be written.
func run(interrupt context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	stderr = screen.Guard(stderr)
	env := &cli.Env{Stdin: stdin, Stdout: cli.NewOutput(stdout), Stderr: stderr}
	ctx, cancel := env.Stdout.Context(interrupt)
	defer cancel()
	root := newRoot(env)
	root.SetArgs(args)
	setPrefixMatching(root, args)
	c, err := root, mistakenHelp(root, args)
	if err == nil {
		c, err = root.ExecuteContextC(ctx)
	}
	failed := env.Stdout.Err()
	if failed != nil && (err == nil || interrupt.Err() == nil) {
		err = failed // the other error is a consequence
	}
	switch {
	case interrupt.Err() != nil:
		err = interrupted(err)
	case errors.Is(failed, syscall.EPIPE) && !signal.Ignored(syscall.SIGPIPE):
		err = exit.Silent(exit.ClosedPipe)
	}
	printError(stderr, err)
	if exit.Code(err) == exit.BadArgs && !c.HasSubCommands() {
		env.Hint("usage: %s", c.UseLine())
	}
	return exit.Code(err)
}

// interrupted gives an interrupted command's error the exit code for interruptions. An error keeps
// its code if it comes from a program that the command ran, or from an incomplete check.
func interrupted(err error) error {
	if err == nil {
		return nil
	}
	var e *exit.Error
	ran := (*exec.ExitError)(nil)
	switch {
	case errors.As(err, &ran):
		return err
	case strings.Contains(err.Error(), "signal received"): // the cause of the context
		return cli.ErrInterrupted
	case exit.Code(err) != exit.Failure:
		return err
	case errors.As(err, &e) && e.Err == nil:
		return exit.Silent(exit.Interrupted)
	}
	return exit.With(exit.Interrupted, err)
}

// setPrefixMatching allows shortened commands, as etcdctl does. Below check it does not: a word
// there is more likely a directory.
func setPrefixMatching(root *cobra.Command, args []string) {
	cobra.EnablePrefixMatching = true
	c, _, err := root.Find(args)
	cobra.EnablePrefixMatching = err != nil || !c.HasParent() || c.Parent().Name() != "check" ||
		slices.Contains(args, c.Name())
}

// newRoot returns the command with all its subcommands.
func newRoot(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "vigilctl",
		Short: "Talk to a Vigil or etcd cluster, and maintain its members",
		Long: `Talk to a Vigil or etcd cluster, and maintain its members.

Commands, flags, environment variables and output are those of etcdctl and
etcdutl, and there are more. Each global flag can be given as an environment
variable too: VIGILCTL_ENDPOINTS, or ETCDCTL_ENDPOINTS, for --endpoints.`,
		Args:              command.OnlySubcommands,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: env.Prepare,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(command.FlagError)
	env.AddFlags(root.PersistentFlags())
	foldGlobalFlags(root)
	command.CompleteFlag(root, "write-out", show.Formats)

	check := offline.Check()
	check.AddCommand(loadtest.Perf(env), loadtest.DataScale(env))
	snapshot := command.Group("snapshot <subcommand>",
		"Take, inspect and restore backups in etcd's format", "",
		clustercmd.SnapshotSave(env), offline.SnapshotStatus(), offline.SnapshotRestore())
	archive := command.Group("archive <subcommand>",
		"Status of the archive of a cluster in a bucket; list, verify, restore and prune it", "",
		monitor.ArchiveStatus(env), archivecmd.List(), archivecmd.Verify(), archivecmd.Restore(env),
		archivecmd.Prune(env))
	const other = "other"
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"kv", "Keys and values:",
			[]*cobra.Command{kvcmd.Get(env), kvcmd.Put(env), kvcmd.Del(env), keyview.List(env),
				kvcmd.Txn(env), kvcmd.Compaction(env), kvcmd.Watch(env), kvcmd.Lease(env)}},
		{"cluster", "Members and their data:",
			[]*cobra.Command{clustercmd.Member(env), clustercmd.Endpoint(env),
				clustercmd.Alarm(env), clustercmd.Defrag(env),
				clustercmd.MoveLeader(env), clustercmd.Downgrade(env), check, snapshot, archive,
				offline.HashKV()}},
		{"concurrency", "Locks and elections:",
			[]*cobra.Command{lockcmd.Lock(env), lockcmd.Elect(env)}},
		{"auth", "Users and roles:",
			[]*cobra.Command{authcmd.Auth(env), authcmd.User(env), authcmd.Role(env)}},
		{"look", "Looking closer, and moving data:",
			[]*cobra.Command{keyview.History(env), keyview.Diff(env), keyview.Tree(env),
				monitor.Watchers(env), monitor.Top(env), doctor.Command(env), transfer.Dump(env),
				transfer.Load(env)}},
		{other, "Other:", []*cobra.Command{transfer.MakeMirror(env), versionCommand(env),
			optionsCommand(root), completionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	addWatchFlags(root, env)
	noteIgnored(root, env)
	addExamples(root, "")
	complete.Register(root, env)
	root.SetHelpCommand(helpCommand())
	root.SetHelpCommandGroupID(other)
	root.SetCompletionCommandGroupID(other)
	return root
}
