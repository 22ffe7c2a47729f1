// Command vigil runs one member of a Vigil cluster: a durable, watchable key-value store that
// speaks the etcd v3 API. Run it with --help for its flags.
//
// Exit codes: 0 after a clean stop by SIGTERM or SIGINT, or by removal from the cluster, 1 if the member could not start or had to
// stop, 2 for a mistake in the command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"vigil/server"
)

// stopTimeout bounds the wait for requests under way at a clean stop; what is still open then is cut.
// Scripts written for etcd expect a member to be gone within a second and a half.
const stopTimeout = 1200 * time.Millisecond

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	show, format := len(args) > 0 && args[0] == "config", ""
	if show {
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
	case o.version:
		fmt.Printf("Vigil Version: %s\netcd Version: %s\nGo Version: %s\nGo OS/Arch: %s\n",
			server.Version, server.APIVersion, server.GoVersion(), server.Platform())
		return 0
	case err != nil:
		return mistake(err)
	case show:
		if err := o.printEffective(os.Stdout, format); err != nil {
			fmt.Fprintln(os.Stderr, "vigil:", err)
			return 1
		}
		return 0
	}
	out, log, err := openLog(&o.log)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vigil:", oneLine(err))
		return 1
	}
	reopenLog(out, log)
	o.config.Logger = log
	keepHeadroom()
	o.logNotes(log)
	if o.memoryLock {
		if err := lockMemory(); err != nil {
			fmt.Fprintln(os.Stderr, "vigil: --memory-mlock:", err)
			return 1
		}
	}

	// Signals are taken before the start, so that one that arrives early stops the member too.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)

	starting, started := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	m, err := server.StartContext(starting, o.config)
	started()
	if err != nil && starting.Err() != nil && errors.Is(err, context.Canceled) {
		log.Info("stopped while the member was starting")
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vigil:", oneLine(err))
		return 1
	}
	telling, told := context.WithCancel(context.Background())
	go tellSystemd(telling, m, log)
	code := 0
	select {
	case s := <-signals:
		log.Info("stopping", "signal", s.String())
	case err := <-m.Failed():
		if errors.Is(err, server.ErrRemoved) {
			// As asked for. A supervisor should not start it again.
			log.Info("stopping", "reason", err.Error())
			break
		}
		log.Error("stopping: the member cannot go on", "error", err)
		code = 1
	}
	told()
	notify(log, daemon.SdNotifyStopping)
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	go func() {
		// A second signal cuts the stop short.
		<-signals
		cancel()
	}()
	if err := m.Close(ctx); err != nil {
		log.Error("the stop was not clean; nothing that was acknowledged is lost", "error", err)
		return 1
	}
	log.Info("stopped")
	return code
}

// mistake tells what is wrong with the configuration.
func mistake(err error) int {
	fmt.Fprintln(os.Stderr, "vigil:", oneLine(err))
	return 2
}
