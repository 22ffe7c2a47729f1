package httpd

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// ended reports whether the client has closed its side of a connection, whatever it has sent before that was not read.
func ended(c net.Conn) (yes bool) {
	for inner, ok := c.(interface{ NetConn() net.Conn }); ok; inner, ok = c.(interface{ NetConn() net.Conn }) {
		c = inner.NetConn()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true // it is closed
	}
	err = raw.Control(func(fd uintptr) {
		list := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(list, 0)
		yes = err == nil && n > 0
	})
	return yes || err != nil
}
