package cli

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Signals returns the signals of the list to catch: SIGHUP is left out if it is ignored, as under
// nohup.
func Signals(list ...os.Signal) []os.Signal {
	return slices.DeleteFunc(list,
		func(s os.Signal) bool { return s == syscall.SIGHUP && signal.Ignored(s) })
}
