//go:build unix

package server

import "golang.org/x/sys/unix"

// openFileLimit returns how many files the process may have open.
func openFileLimit() (uint64, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return limit.Cur, true
}
