// Command vigil runs one member of a Vigil cluster: a durable, watchable key-value store that
// speaks the etcd v3 API. Run it with --help for its flags.
//
// Exit codes: 0 after a clean stop by SIGTERM or SIGINT, or by removal from the cluster, 1 if the
// member could not start or had to stop, or if a second signal ended it, 2 for a mistake in the
// command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"vigil/internal/logline"
	"vigil/server"
)

// stopTimeout limits the wait for pending requests at a clean stop. Then the remaining connections
// are closed. Scripts written for etcd expect a member to exit within a second and a half.
const stopTimeout = 1200 * time.Millisecond

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	var show bool
	format := "simple"
	switch command := append(args, "")[0]; command {
	case "help":
		if err := help(os.Stdout, args[1:]); err != nil {
			return mistake(err)
		}
		return 0
	case "version":
		var rest []string
		var err error
		if format, rest, err = splitFormat(args[1:]); err != nil {
			return mistake(err)
		}
		if len(rest) > 0 || format == "yaml" {
			return mistake(fmt.Errorf("vigil version takes -w json only, and got %q (%w)",
				args[1:], errUsage))
		}
		args = []string{"--version"}
	case "config":
		show = true
		var err error
		if format, args, err = splitFormat(args[1:]); err != nil {
			return mistake(err)
		}
	}
	o, err := parse(args, environ())
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(os.Stdout)
		return 0
	case err != nil:
		return mistake(err)
	case o.version:
		if err := printVersion(os.Stdout, format); err != nil {
			return failure(err)
		}
		return 0
	case show:
		if err := o.printEffective(os.Stdout, format); err != nil {
			return failure(err)
		}
		return 0
	}
	return runMember(o)
}

// runMember runs a member until a signal or an error, and returns the exit code.
func runMember(o *options) int {
	// Catch signals before the start, so that an early signal stops the member too.
	inTerminal := o.forPeople(os.Stderr)
	stop, hurry := onSignals(inTerminal)
	outliveReaders()
	var people *terminalLog
	if inTerminal {
		screen := logline.NewWriter(os.Stderr)
		defer screen.Flush()
		people = newTerminalLog(screen)
		o.printStart(people)
	}
	out, log, err := openLog(&o.log, people)
	if err != nil {
		return mistake(err)
	}
	defer out.Close()
	if !inTerminal {
		reopenOnHangup(out, log)
	}
	o.config.Logger = log
	if !o.config.EnablePprof && !log.Enabled(context.Background(), slog.LevelDebug) {
		// no one can read the memory profile, and its tables take more than a megabyte
		runtime.MemProfileRate = 0
	}
	keepHeadroom()
	o.logConfiguration(log)
	if o.memoryLock {
		if err := lockMemory(); err != nil {
			return o.notStarted(out, log, fmt.Errorf("--memory-mlock: %w", err))
		}
	}

	m, err := server.StartContext(stop, o.config)
	if err != nil && stop.Err() != nil && errors.Is(err, context.Canceled) {
		log.Info("stopped while the member was starting")
		return 0
	}
	if err != nil {
		return o.notStarted(out, log, err)
	}
	notifying, stopNotifying := context.WithCancel(context.Background())
	go notifySystemd(notifying, m, log)
	if people != nil {
		go o.printReady(notifying, m, people)
	}
	code := waitForStop(m, stop, log)
	stopNotifying()
	notify(log, daemon.SdNotifyStopping)
	// A second signal ends the wait for pending requests.
	ctx, cancel := context.WithTimeout(hurry, stopTimeout)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		log.Error("the stop was not clean; no acknowledged write is lost", "error", err)
		return 1
	}
	log.Info("stopped")
	return code
}

// waitForStop waits for a signal or a failure of the member, and returns the exit code.
func waitForStop(m *server.Member, stop context.Context, log *slog.Logger) int {
	select {
	case <-stop.Done():
		var s signalError
		errors.As(context.Cause(stop), &s)
		log.Info("stopping", "signal", s.String())
	case err := <-m.Failed():
		if errors.Is(err, server.ErrRemoved) {
			// An operator requested this: a supervisor should not restart the member.
			log.Info("stopping", "reason", err.Error())
			return 0
		}
		log.Error("stopping: the member cannot go on", "error", err)
		return 1
	}
	return 0
}

// notStarted reports why the member does not start, and returns the exit code. If the log goes
// elsewhere, it has the reason too.
func (o *options) notStarted(out *logline.Log, log *slog.Logger, err error) int {
	if slices.ContainsFunc(o.log.outputs,
		func(out string) bool { return out != logline.Default && out != logline.Stderr }) {
		log.Error("the member does not start", "error", err)
	}
	_ = out.Flush() // the reason must be the last line
	var wrong *server.ConfigError
	if errors.As(err, &wrong) {
		return mistake(err)
	}
	return failure(err)
}

// mistake reports an error in the configuration, failure any other error. They return the exit
// code.
func mistake(err error) int { printError(err); return 2 }
func failure(err error) int { printError(err); return 1 }

func printError(err error) { fmt.Fprintln(os.Stderr, "vigil:", oneLine(err)) }
