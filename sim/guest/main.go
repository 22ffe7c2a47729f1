//go:build wasip1

package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

	"vigil/sim/guest/sys"
)

func main() {} // never called: the program is a library

func init() {
	// processes are short-lived, and collections are a large part of their time
	debug.SetGCPercent(800)
}

// begin is where a process begins, in the memory of the program after its initialization.
//
//go:wasmexport run
func begin() {
	sys.Reseed()
	role, config := sys.Setup()
	if err := run(role, []byte(config)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(role string, config []byte) error {
	switch role {
	case "member":
		return start(config, runMember)
	case "client":
		return start(config, runClient)
	case "operator":
		return start(config, runOperator)
	case "change":
		return start(config, runChange)
	case "probe":
		return start(config, runProbe)
	case "stop":
		return start(config, runStop)
	}
	return fmt.Errorf("unknown role %q", role)
}

func start[C any](config []byte, run func(C) error) error {
	var c C
	var common struct{ Users bool }
	if err := json.Unmarshal(config, &common); err != nil {
		return err
	}
	withUsers = common.Users
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	return run(c)
}

// newLog returns a log that becomes part of the trace, which has times of its own.
func newLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr,
		&slog.HandlerOptions{Level: slog.LevelInfo,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))
}
