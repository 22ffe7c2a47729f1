package httpd

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// clientGone reports whether the client closed its side of a connection, even if there is unread
// data.
func clientGone(c net.Conn) (yes bool) {
	for inner, ok := c.(interface{ NetConn() net.Conn }); ok; inner,
		ok = c.(interface{ NetConn() net.Conn }) {
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
