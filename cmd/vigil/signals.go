package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// exitTimeout limits how long the process lives after a second signal. Killing it is always safe.
const exitTimeout = time.Second

// signalError is the cause of a context that ended because of a signal.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return fmt.Sprintf("signal %s", e.Signal) }

// Unwrap returns the usual error of an ended context.
func (e signalError) Unwrap() error { return context.Canceled }

// onSignals returns two contexts: the first signal to stop ends stop, and the second one hurry. The
// process exits exitTimeout after the second one, whatever it waits for: a disk may hang, and so
// may the reader of the log. A member in a terminal also stops when the terminal closes.
func onSignals(inTerminal bool) (stop, hurry context.Context) {
	stop, stopNow := context.WithCancelCause(context.Background())
	hurry, hurryUp := context.WithCancelCause(context.Background())
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT)
	if inTerminal && !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(received, syscall.SIGHUP)
	}
	go func() {
		stopNow(signalError{<-received})
		again := <-received
		for again == syscall.SIGHUP { // both the terminal and its shell send one
			again = <-received
		}
		hurryUp(signalError{again})
		time.Sleep(exitTimeout)
		os.Exit(1)
	}()
	return stop, hurry
}

// outliveReaders makes a write to standard output or standard error return an error when the reader
// of the pipe has gone. Otherwise the signal would end the process. The log loses lines, but the
// member continues.
func outliveReaders() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}
