package cli

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Signals returns the signals of the list to catch. It leaves out SIGHUP if that is ignored, as
// under nohup.
func Signals(list ...os.Signal) []os.Signal {
	return slices.DeleteFunc(list,
		func(s os.Signal) bool { return s == syscall.SIGHUP && signal.Ignored(s) })
}
