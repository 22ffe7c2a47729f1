// Package exit has errors that carry the exit code of the program. All codes except Conflict and
// ClosedPipe are etcdctl's.
package exit

import (
	"errors"
	"fmt"
)

// The exit codes.
const (
	Failure       = 1
	BadConnection = 2
	InvalidInput  = 3
	BadFeature    = 4
	Interrupted   = 5
	Conflict      = 6 // not in etcdctl: keys that should be written have changed
	// not in etcdctl: the reader of the output has gone. A shell shows this code for SIGPIPE
	ClosedPipe = 141
	BadArgs    = 128
)

// Error is an error with an exit code. If Err is nil, the command has already printed the reason.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// With returns err with an exit code.
func With(code int, err error) error { return &Error{code, err} }

// Silent returns an exit code without a text to print.
func Silent(code int) error { return &Error{Code: code} }

// Usage returns an error about a command's arguments, with the code BadArgs.
func Usage(format string, args ...any) error { return With(BadArgs, fmt.Errorf(format, args...)) }

// Code returns the exit code of an error: Failure if the error carries none, 0 for nil.
func Code(err error) int {
	var e *Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return Failure
}
