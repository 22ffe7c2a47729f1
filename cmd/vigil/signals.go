package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// exitTimeout is how long the process lives at most after a second signal. A kill is safe at any
// time.
const exitTimeout = time.Second

// signalError is the cause of a context that a signal has ended.
type signalError struct{ os.Signal }

func (e signalError) Error() string { return fmt.Sprintf("signal %s", e.Signal) }

// Unwrap makes the cause the error that the end of a context is.
func (e signalError) Unwrap() error { return context.Canceled }

// onSignals returns two contexts: the first signal to stop ends stop, and the second one hurry. The
// process exits exitTimeout after the second one, whatever it waits for: a disk may hang, and so
// may the reader of the log. The end of the terminal stops a member in one.
func onSignals(inTerminal bool) (stop, hurry context.Context) {
	stop, stopNow := context.WithCancelCause(context.Background())
	hurry, hurryUp := context.WithCancelCause(context.Background())
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT)
	if inTerminal && !signal.Ignored(syscall.SIGHUP) { // nohup
		signal.Notify(received, syscall.SIGHUP)
	}
	go func() {
		stopNow(signalError{<-received})
		again := <-received
		for again == syscall.SIGHUP { // of the terminal and of its shell
			again = <-received
		}
		hurryUp(signalError{again})
		time.Sleep(exitTimeout)
		os.Exit(1)
	}()
	return stop, hurry
}

// outliveReaders makes a write to standard output or standard error fail when the reader of the
// pipe has ended, instead of ending the process: the log loses its lines then, and the member goes
// on.
func outliveReaders() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}
