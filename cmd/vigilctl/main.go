// Command vigilctl talks to a cluster and looks after its members. Run it with --help for its commands.
//
// Exit codes are those of etcdctl: 0 if all is well, 1 if the command found or met a failure or the command line has a
// flag or command that is not known, 2 if no connection can be configured, 3 for input that makes no sense, 4 for a
// flag's value that is not supported, 5 if something was interrupted or is unhealthy, 128 for bad arguments.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/show"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), heeded(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// heeded returns those of some signals that are to be caught: SIGHUP is not if nohup has it ignored.
func heeded(list ...os.Signal) []os.Signal {
	return slices.DeleteFunc(list, func(s os.Signal) bool { return s == syscall.SIGHUP && signal.Ignored(s) })
}

const (
	exitFailure       = 1
	exitBadConnection = 2
	exitInvalidInput  = 3
	exitBadFeature    = 4
	exitInterrupted   = 5
	exitBadArgs       = 128
)

// badArgs is a mistake in a command's arguments.
func badArgs(format string, args ...any) error {
	return &exit{exitBadArgs, fmt.Errorf(format, args...)}
}

// exit is an error with an exit code. Without an error the command has already said what there is to
// say.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// The groups of the help.
const (
	groupKV      = "kv"
	groupCluster = "cluster"
	groupAgree   = "concurrency"
	groupAuth    = "auth"
	groupLook    = "look"
	groupUtility = "utility"
)

// run carries out a command line and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{to: stdout}
	root := newRoot(stdin, out, stderr)
	root.SetArgs(args)
	abbreviate(root, args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.err()
	}
	if err == nil {
		return 0
	}
	code := exitFailure
	var e *exit
	if errors.As(err, &e) {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	fmt.Fprintln(stderr, "Error:", err)
	return code
}

// abbreviate lets commands be shortened as etcdctl does, but not those below check: there a word is rather a directory.
func abbreviate(root *cobra.Command, args []string) {
	cobra.EnablePrefixMatching = true
	c, _, err := root.Find(args)
	cobra.EnablePrefixMatching = err != nil || !c.HasParent() || c.Parent().Name() != "check" || slices.Contains(args, c.Name())
}

// newRoot returns the command with all that are below it.
func newRoot(stdin io.Reader, stdout *output, stderr io.Writer) *cobra.Command {
	a := &app{in: stdin, out: stdout, errOut: stderr}
	root := &cobra.Command{
		Use:   "vigilctl",
		Short: "Talk to a Vigil or etcd cluster, and look after its members",
		Long: `Talk to a Vigil or etcd cluster, and look after its members.

Commands, flags, environment variables and output are those of etcdctl and
etcdutl, and there are more. Each global flag can be given as an environment
variable too: VIGILCTL_ENDPOINTS, or ETCDCTL_ENDPOINTS, for --endpoints.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: a.prepare,
	}
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	a.addTo(root.PersistentFlags())
	complete(root, "write-out", show.Formats)
	root.AddGroup(&cobra.Group{ID: groupKV, Title: "Keys and values:"}, &cobra.Group{ID: groupCluster, Title: "Members and their data:"},
		&cobra.Group{ID: groupAgree, Title: "Locks and elections:"}, &cobra.Group{ID: groupAuth, Title: "Users and roles:"},
		&cobra.Group{ID: groupLook, Title: "Looking closer, and moving data:"},
		&cobra.Group{ID: groupUtility, Title: "Other:"})
	root.SetHelpCommandGroupID(groupUtility)
	root.SetCompletionCommandGroupID(groupUtility)
	add(root, groupKV, a.getCommand(), a.putCommand(), a.delCommand(), a.txnCommand(), a.compactionCommand(), a.watchCommand(), a.leaseCommand())
	add(root, groupCluster, a.memberCommand(), a.endpointCommand(), a.alarmCommand(), a.defragCommand(), a.moveLeaderCommand(), a.downgradeCommand(),
		a.checkCommand(), a.snapshotCommand(), hashKVCommand())
	add(root, groupAgree, a.lockCommand(), a.electCommand())
	add(root, groupAuth, a.authCommand(), a.userCommand(), a.roleCommand())
	add(root, groupUtility, a.makeMirrorCommand(), versionCommand(), optionsCommand(root), completionCommand())
	add(root, groupLook, a.historyCommand(), a.diffCommand(), a.treeCommand())
	add(root, groupLook, a.watchersCommand(), a.topCommand(), a.doctorCommand(), a.dumpCommand(), a.loadCommand())
	return root
}

// add adds commands to a group of the help.
func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// group is a command that has only others below it.
func group(use, short, long string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(commands...)
	return c
}
