//go:build race && unix

package h2

import "syscall"

// announceWrite lets the race detector know that a write follows. It takes what a client receives
// to be after what came before the write, for Write of package syscall, but not for a vectored
// write; a test and a handler in one process would seem to race.
func announceWrite() { _, _ = syscall.Write(-1, nil) }
