package peer

import (
	"net"
	"time"
)

// keepAlive finds dead connections that have nothing to send, below the pings of this package.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second,
	Interval: 5 * time.Second, Count: 3}

// tune sets the socket options of a connection between members.
func tune(conn net.Conn, dead time.Duration) {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	// These make things better where they work; nothing depends on them.
	_ = tcp.SetKeepAliveConfig(keepAlive)
	_ = tcp.SetNoDelay(true)
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { setOptions(fd, dead) })
	}
}
