package h2

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds how long what was written may stay unacknowledged, so that a client that has vanished does not
// keep its connection and the writer.
func setUserTimeout(nc net.Conn, d time.Duration) {
	sc, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond)) // old kernels have none
	})
}
