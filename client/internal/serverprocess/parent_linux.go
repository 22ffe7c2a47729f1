package serverprocess

import "syscall"

// endsWithParent has a server end with the test, however the test ends.
func endsWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
