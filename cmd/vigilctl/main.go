// Command vigilctl is the tool of an operator. Run it with --help for its commands.
//
// Exit codes: 0 if all is well, 1 if the command found or met a failure, 2 for a mistake in the command
// line and for what could not be tried at all.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const (
	exitFailure = 1
	exitUsage   = 2
)

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

// run carries out a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "vigilctl",
		Short:         "Look after a Vigil member",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(checkCommand(), snapshotCommand())
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	// What cobra refuses is a mistake in the command line.
	code := exitUsage
	var e *exit
	if errors.As(err, &e) {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	fmt.Fprintln(stderr, "vigilctl:", err)
	return code
}
