//go:build unix

package server

import "golang.org/x/sys/unix"

// openFileLimit returns the maximum number of open files of the process.
func openFileLimit() (uint64, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, false
	}
	return limit.Cur, true
}
